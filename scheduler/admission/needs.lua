-- What an invocation needs, and on which GPU hosts.

-- Reads and writes hashes that have many fields.

-- Returns a table that reads each value when it is first used: a script uses few of the hosts and models of a large platform.
local function readOnce(read)
  local missing = {}
  return setmetatable({}, { __index = function(known, name)
    if missing[name] then
      return nil
    end
    local value = read(name)
    if value == nil then
      missing[name] = true
      return nil
    end
    known[name] = value
    return value
  end })
end

-- The fields of a hash whose names begin with `start`, by the rest of their names; `parse` turns each text into a value.
local function fieldsOf(key, start, parse)
  return readOnce(function(name)
    local value = redis.call('HGET', key, start .. name)
    return value and parse(value) or nil
  end)
end

-- Maximum number of values that one call passes to Redis: Lua's stack holds about 8,000.
local MOST_AT_ONCE = 4000

-- Sets fields of a hash (`set` alternates fields and values) and removes others.
local function write(key, set, dropped)
  for i = 1, #set, MOST_AT_ONCE do
    redis.call('HSET', key, unpack(set, i, math.min(#set, i + MOST_AT_ONCE - 1)))
  end
  for i = 1, #dropped, MOST_AT_ONCE do
    redis.call('HDEL', key, unpack(dropped, i, math.min(#dropped, i + MOST_AT_ONCE - 1)))
  end
end

-- Key of runtime memory, in MiB, among counts of pages by model. No model has such a name.
local MEMORY = '#memory'
-- Pages expected of an unknown function, on the first model that its manifest names, or the platform's first model by name.
local DEFAULT_PAGES = 4

-- Returns the KV pages, by model, that an invocation is expected to hold: declared in its manifest, else learned from its version, else the default.
-- They are at least what an attempt held or asked for when it was ended for lack of memory (`least`), and at most what the tenant's quota allows
-- (`most`, nil for no quota). The result also has the runtime memory that the invocation is expected to take: learned from its version, else from
-- its record. Fields read from the record: `declared`, `first` (model), `least`, `learnedKey`, `memory`.
local function expectedPages(a, record, most)
  local declared, first = record.declared, record.first
  first = first or a.first
  local all = {}
  local number = tonumber(declared)
  if number then
    all = first and { [first] = number } or {}
  elseif declared then
    all = cjson.decode(declared)
  else
    local learned = record.learnedKey and redis.call('HGETALL', record.learnedKey) or {}
    for i = 1, #learned, 2 do
      local model = string.match(learned[i], '^pages:(.*)$')
      if model then
        all[model] = tonumber(learned[i + 1])
      end
    end
    if first and not learned[1] then
      all[first] = DEFAULT_PAGES
    end
  end
  all[MEMORY] = tonumber(record.learnedKey and redis.call('HGET', record.learnedKey, 'pages:' .. MEMORY) or record.memory or 0)
  for model, count in pairs(record.least and cjson.decode(record.least) or {}) do
    all[model] = math.max(all[model] or 0, count)
  end
  for model, count in pairs(all) do
    if most and model ~= MEMORY then
      count = math.min(count, most)
    end
    all[model] = count >= 1 and count or nil
  end
  return all
end

-- Returns the GPU hosts of a model.
local function hostsOf(a, model)
  return a.hostsVersion and redis.call('ZRANGE', a.base .. 'hosts:' .. model, 0, -1) or {}
end

-- Returns the host among `hosts` and `best` (a host or nil) that `preference` in ../policies/placement.ts puts first for a key. The key must
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
  if not a.hostsVersion then
    return nil
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
  if named and redis.call('ZSCORE', a.base .. 'hosts:' .. model, named) then
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

-- Returns how full the GPU hosts of a key would be with `pages` added: the largest fraction of a host's pages that admitted invocations would then
-- take. A host without invocations counts as 1 at most, since a head of any size may start there.
local function crowdingOf(a, key, pages)
  local most = 0
  for place, count in pairs(placed(a, nil, key, pages)) do
    if string.find(place, '@', 1, true) then
      local used = a.used[place] or 0
      local part = (used + count) / (a.pages[place] or 0)
      most = math.max(most, used == 0 and math.min(1, part) or part)
    end
  end
  return most
end

-- Returns placement keys for two GPU hosts, which the id draws (`drawTwo` in ../policies/placement.ts) among the hosts of the model with the
-- most expected pages (of several such models, the first by name). Returns nil when that model has fewer than two hosts.
local function drawnKeys(a, id, pages)
  local chosen
  for model, count in pairs(pages) do
    local most = chosen and pages[chosen] or -1
    if model ~= MEMORY and (count > most or (count == most and model < chosen)) then
      chosen = model
    end
  end
  local list = a.base .. 'hosts:' .. (chosen or '')
  local hosts = chosen and redis.call('ZCARD', list) or 0
  if hosts < 2 then
    return nil
  end
  local function keyAt(index)
    return '@' .. redis.call('ZRANGE', list, index, index)[1] .. '/' .. id
  end
  local digits = redis.sha1hex(id)
  local one = tonumber(string.sub(digits, 1, 8), 16) % hosts
  local other = tonumber(string.sub(digits, 9, 16), 16) % (hosts - 1)
  return keyAt(one), keyAt(other < one and other or other + 1)
end

-- Implements `chosenKey` in ../policies/testing/chosen-key.ts: the affinity while its hosts have room; else the less crowded of two drawn hosts, if it
-- has room, or the first one drawn; the id when there are no two hosts.
local function chosenKey(a, id, affinity, pages)
  if affinity and crowdingOf(a, affinity, pages) <= 1 then
    return affinity
  end
  local one, other = drawnKeys(a, id, pages)
  local part = other and crowdingOf(a, other, pages) or math.huge
  return part <= 1 and part < crowdingOf(a, one, pages) and other or one or id
end
