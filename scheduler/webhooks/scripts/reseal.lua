--[[
  Puts the same secret, sealed under another key, in place of a sealed one, unless that was rotated.

  KEYS[1] a tenant's secret (string)

  ARGV[1] what is there
  ARGV[2] what is to be there

  Returns 1 replaced, 0 something else is there.
]]
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
