-- Reads the limits that admission applies from a tenant's record and quotas.
local function tenantLimits(a, name)
  if a.limits[name] then
    return a.limits[name]
  end
  local weight, suspended = unpack(redis.call('HMGET', a.prefix .. ':tenant:' .. name, 'weight', 'suspended'))
  local account = a.prefix .. ':account:' .. name
  local limits = {
    weight = tonumber(weight) or 100,
    suspended = suspended == '1',
    concurrency = quotaLimit(account, 'concurrent-invocations', '', a.now),
    pages = quotaLimit(account, 'kv-pages', '', a.now),
  }
  a.limits[name] = limits
  return limits
end
