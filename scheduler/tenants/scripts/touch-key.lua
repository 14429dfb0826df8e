--[[
  Stores the time of a key's last use, unless the key was removed.

  KEYS[1] record of the key (hash)

  ARGV[1] time of use, ms since the epoch

  Returns 1 stored, 0 the key is gone or was used later.
]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if tonumber(redis.call('HGET', KEYS[1], 'lastUsedAt') or '0') >= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'lastUsedAt', ARGV[1])
return 1
