--[[
  Changes fields of an existing tenant. Admission reads the fields `weight` and `suspended`, create.lua reads `latency`.

  KEYS[1] the tenant's record (hash)

  ARGV[1…] fields and values

  Returns 1 changed, 0 there is no such tenant.
]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if #ARGV > 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return 1
