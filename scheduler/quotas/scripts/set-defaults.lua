--[[
  Replaces the default limits of all tenants.

  KEYS[1] settings of the tenant `*` (hash), see include/limits.lua

  ARGV[1...] pairs: field, limit
]]
redis.call('DEL', KEYS[1])
if #ARGV > 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
