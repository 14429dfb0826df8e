--[[
  Lists the tenants that have invocations waiting or admitted.

  KEYS[1] admission's state (hash), see include/admission.lua
  ARGV[1] prefix of every key
  ARGV[2] now, ms

  Returns a flat list: tenant, waiting, running, weight for each tenant.
]]
--- @include "./include/admission.lua"

local a = openAdmission(ARGV[1], ARGV[2])
local all = {}
for _, name in ipairs(redis.call('SMEMBERS', a.base .. 'tenants')) do
  all[#all + 1] = name
  all[#all + 1] = redis.call('ZCARD', a.prefix .. ':waiting:' .. name)
  all[#all + 1] = tonumber(redis.call('HGET', a.base .. 'tenant:' .. name, 'running') or 0)
  all[#all + 1] = tonumber(redis.call('HGET', a.prefix .. ':tenant:' .. name, 'weight') or 100)
end
return all
