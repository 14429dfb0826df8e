--[[
  Stores a schedule of a tenant, or replaces the one of its name.

  KEYS[1] the tenant's schedules (hash)
  KEYS[2] the function of the tenant that the schedule invokes (hash), or '' for a function of the platform
  KEYS[3] tenants that have or had schedules (set)

  ARGV[1] name
  ARGV[2] entry, JSON text
  ARGV[3] maximum schedules of the tenant
  ARGV[4] tenant

  Returns 1 stored, 0 the tenant has as many as it may, -1 there is no such function.
]]
if KEYS[2] ~= '' and redis.call('EXISTS', KEYS[2]) == 0 then
  return -1
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[3], ARGV[4])
return 1
