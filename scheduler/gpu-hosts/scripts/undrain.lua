--[[
  Ends the drain of a GPU host, which then takes new invocations again.

  KEYS[1] drained hosts (hash)
  KEYS[2] channel of changes
  ARGV[1] name of the host

  Returns 1 the host was drained, 0 it was not.
]]
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('PUBLISH', KEYS[2], ARGV[1])
return 1
