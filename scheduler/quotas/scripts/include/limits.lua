-- Limits of a tenant, in the hash `<account>:quotas`. The field `<quota>` (of the tenant) or `<quota>:<function>` holds `<limit>`; with an override
-- it holds `<limit, or - for none> <override> <until, ms>`. The field `#counted` exists when at least one counted limit (see COUNTED) is set. The
-- account `*` holds the defaults of every tenant. `resolve` of limits.ts finds the same limit.
local COUNTED = {'requests', 'tokens', 'gpu-ms', 'cpu-ms'}
local QUOTA_WINDOWS = {'minute', 'day', 'month'}

local function defaultQuotas(account)
  return string.match(account, '^(.*:)[^:]*$') .. '*:quotas'
end

-- The limit in a field's value at the time `now`; nil for no limit.
local function inForce(value, now)
  if not value then
    return nil
  end
  local set, override, expiry = string.match(value, '^(%S+) (%S+) (%S+)$')
  if override and tonumber(expiry) > now then
    return tonumber(override)
  end
  return tonumber(set or value)
end

-- Settings that nearly every script reads, by name. Cached per script run: a script that reads them must not change them.
local OFTEN_READ = {'#counted', 'concurrent-invocations', 'waiting-invocations', 'kv-pages', 'storage-bytes', 'redis-bytes',
  'disk-bytes', 'latency-invocations', 'schedules'}
local quotasRead = {}

local function oftenRead(settings)
  if not quotasRead[settings] then
    local values, known = redis.call('HMGET', settings, unpack(OFTEN_READ)), {}
    for i, name in ipairs(OFTEN_READ) do
      known[name] = values[i]
    end
    quotasRead[settings] = known
  end
  return quotasRead[settings]
end

-- A limit of the tenant (fn is '', and the quota is in OFTEN_READ) or of one of its functions; nil for none.
local function quotaLimit(account, quota, fn, now)
  if fn ~= '' then
    return inForce(redis.call('HGET', account .. ':quotas', quota .. ':' .. fn), now)
  end
  return inForce(oftenRead(account .. ':quotas')[quota], now) or inForce(oftenRead(defaultQuotas(account))[quota], now)
end

-- Every counted limit of the tenant and this function, the shortest window first: tables with kind, window, fn ('' for the tenant) and limit.
local function countedLimits(account, fn, now)
  local settings, defaults = account .. ':quotas', defaultQuotas(account)
  local own, usual = oftenRead(settings)['#counted'], oftenRead(defaults)['#counted']
  local limits = {}
  if not own and not usual then
    return limits
  end
  local names, fields = {}, {}
  for _, window in ipairs(QUOTA_WINDOWS) do
    for _, kind in ipairs(COUNTED) do
      local name = kind .. '-per-' .. window
      names[#names + 1] = name
      fields[#fields + 1] = name
      fields[#fields + 1] = name .. ':' .. fn
    end
  end
  -- `set` has the values of this tenant, two for each name: the tenant's and the function's. `given` has the defaults.
  local set = own and redis.call('HMGET', settings, unpack(fields)) or {}
  local given = usual and redis.call('HMGET', defaults, unpack(names)) or {}
  for i in ipairs(names) do
    local window, kind = QUOTA_WINDOWS[math.floor((i - 1) / #COUNTED) + 1], COUNTED[(i - 1) % #COUNTED + 1]
    local whole, one = inForce(set[2 * i - 1], now) or inForce(given[i], now), inForce(set[2 * i], now)
    if whole then
      limits[#limits + 1] = {kind = kind, window = window, fn = '', limit = whole}
    end
    if one then
      limits[#limits + 1] = {kind = kind, window = window, fn = fn, limit = one}
    end
  end
  return limits
end
