--[[
  Replaces a sealed value by the same value sealed under another key, unless it was dropped meanwhile.

  KEYS[1] sealed values of a tenant (hash)

  ARGV[1] name and revision of the value
  ARGV[2] present sealed value
  ARGV[3] new sealed value

  Returns 1 replaced, 0 the sealed value has changed.
]]
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
