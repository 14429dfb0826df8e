--[[
  Puts the same value, sealed under another key, in place of a sealed value, unless that was dropped.

  KEYS[1] sealed values of a tenant (hash)

  ARGV[1] name and revision of the value
  ARGV[2] what is there
  ARGV[3] what is to be there

  Returns 1 replaced, 0 something else is there.
]]
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
