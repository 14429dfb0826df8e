--[[
  Replaces a sealed secret by the same secret sealed under another key, unless it was rotated meanwhile.

  KEYS[1] a tenant's secret (string)

  ARGV[1] present value
  ARGV[2] new value

  Returns 1 replaced, 0 the value has changed.
]]
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
