--[[
  Lists the tenants that have invocations waiting or admitted.

  KEYS[1] admission's state (hash), see include/admission.lua
  ARGV[1] prefix of every key

  Returns a flat list: for each tenant its name, numbers of waiting and of admitted invocations, weight.
]]
local all, prefix = {}, ARGV[1]
for _, name in ipairs(redis.call('SMEMBERS', prefix .. ':admission:tenants')) do
  all[#all + 1] = name
  all[#all + 1] = redis.call('ZCARD', prefix .. ':waiting:' .. name)
  all[#all + 1] = tonumber(redis.call('HGET', prefix .. ':admission:tenant:' .. name, 'running') or 0)
  all[#all + 1] = tonumber(redis.call('HGET', prefix .. ':tenant:' .. name, 'weight') or 100)
end
return all
