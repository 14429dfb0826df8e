-- Returns the GPU hosts of a model. When an earlier release has written the capacity, only the list in the capacity's hash is right.
local function hostsOf(a, model)
  if a.leaving then
    return a.hostsVersion and redis.call('ZRANGE', a.base .. 'hosts:' .. model, 0, -1) or {}
  end
  local text = redis.call('HGET', a.base .. 'capacity', 'hosts:' .. model)
  return text and cjson.decode(text) or {}
end

-- Returns the host among `hosts` and `best` (a host or nil) that `preference` in ../../../policies/placement.ts puts first for a key. The key must
-- name none of the hosts. Returns nil without hosts.
local function preferred(key, hosts, best)
  local most = best and redis.sha1hex(best .. '\0' .. key) or ''
  for _, host in ipairs(hosts) do
    local weight = redis.sha1hex(host .. '\0' .. key)
    if weight > most then
      best, most = host, weight
    end
  end
  return best
end

-- Returns the GPU host of a model that serves a tenant. The tenant's hash stores this host with the version of the list of hosts at that time, so
-- that a script compares it only with hosts that came later: a comparison takes about a microsecond.
local function homeOf(a, tenant, model)
  if not a.leaving or not a.hostsVersion then
    return preferred(tenant.name, hostsOf(a, model))
  end
  local key = a.base .. 'hosts:' .. model
  local seen, home = string.match(tenant.home[model] or '', '^(%d+) (.*)$')
  local came = home and redis.call('ZSCORE', key, home)
  -- When the stored host has gone, even if it came back later, compare all hosts.
  if not came or tonumber(came) > tonumber(seen) then
    seen, home = 0, nil
  elseif tonumber(seen) == a.hostsVersion then
    return home
  end
  home = preferred(tenant.name, redis.call('ZRANGEBYSCORE', key, '(' .. seen, '+inf'), home)
  if home or tenant.home[model] then
    tenant.home[model], tenant.changedHome[model] = home and string.format('%.0f %s', a.hostsVersion, home), true
  end
  return home
end

-- The host that `preference` puts first among all hosts of a model. A key that names one of them needs no comparison.
local function hostOf(a, model, key)
  local named = string.match(key, '^@(.*)/[^/]*$')
  if named and a.leaving and redis.call('ZSCORE', a.base .. 'hosts:' .. model, named) then
    return named
  end
  return preferred(key, hostsOf(a, model))
end

-- Assigns the pages by model to the GPU hosts that are to serve an invocation: the hosts of its placement key, or, when `key` is nil, those of
-- its tenant. Returns pages by place (`<model>@<host>`, or the model alone).
local function placed(a, tenant, key, pages)
  local at = {}
  for model, count in pairs(pages) do
    local host
    if model ~= MEMORY and key then
      host = hostOf(a, model, key)
    elseif model ~= MEMORY then
      host = homeOf(a, tenant, model)
    end
    at[host and model .. '@' .. host or model] = count
  end
  return at
end
