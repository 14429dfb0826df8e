-- Changes of the whole of admission.

--- @script "admit"
--[[
  Admits every invocation that may start. Call it after a change that no other script handles: a report of free memory, a limit, the time.

  KEYS[1] admission's state (hash), see rules.lua
  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] tenant whose limits have changed; '*' for all tenants; '' for none

  Returns {number of admitted invocations, 1 when tenants are left to settle}. When the number equals `MAX_STARTS`, a further call may admit
  more.
]]
--- @include "../store/even-when-full.lua"
--- @include "./rules.lua"

local a = openAdmission(ARGV[1], ARGV[2])
if a.leaving then
  settleSome(a)
else
  -- Without `leaving`, no process has counted the runtimes yet, or Redis has lost the count.
  recount(a)
end
if ARGV[3] == '*' then
  settleAll(a)
elseif ARGV[3] ~= '' then
  settle(a, ARGV[3])
end
admit(a)
closeAdmission(a)
return { a.started, a.settling and 1 or 0 }

--- @script "overview"
--[[
  Lists the tenants that have invocations waiting or admitted.

  KEYS[1] admission's state (hash), see rules.lua
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

--- @script "observe-pages"
--[[
  Adds the peak of a run to the learned peaks of its function version. `finish` of `../invocations/endings.lua` does so for a run that ends its invocation.

  KEYS[1] learned values of the version (hash), see rules.lua
  ARGV[1] retention of that hash, ms
  ARGV[2...] pairs: model, or `#memory`; maximum pages, or MiB, that the run held

  Returns 1.
]]
--- @include "../store/even-when-full.lua"
--- @include "./rules.lua"

local run = {}
for i = 2, #ARGV, 2 do
  run[ARGV[i]] = ARGV[i + 1]
end
learnPeaks(KEYS[1], { run }, ARGV[1])
return 1

--- @script "repair"
--[[
  Checks the ledger against the invocations and repairs it. Every transition is one script, so a fault found here comes from writes that
  Redis lost (a killed Redis comes back without its last second) or from a bug in the platform. The script
    - drops a ledger entry whose invocation has ended or is unknown, and requeues an admitted invocation that is queued and in no BullMQ list;
    - finds queued invocations that are neither in their queues nor debounced nor admitted, and puts each into its queue again; for those without
      a job, it returns the ids instead;
    - removes a job from BullMQ's list `wait` when the ledger does not have it;
    - sets sums that do not equal their entries, and the sets of tenants that share a model;
    - counts the capacity again from all runtimes: once a minute, and while a runtime that takes no more jobs holds some.
  Each call looks at the whole ledger, and at a part of the unended invocations and of the tenants; the next call looks at the next part. It
  settles every tenant of its part, since a limit may have expired.

  KEYS[1] admission's state (hash), see rules.lua; `repairedAt`, `repairedTo` (position in the scan of unended invocations),
          `repairedTenants` (position in the scan of tenants)
  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] least time between two repairs, ms

  Returns {dropped, returned, sums set, id without a job...}, or {} when the last repair was less than ARGV[3] ago.
]]
--- @include "../store/even-when-full.lua"
local prefix, now = ARGV[1], tonumber(ARGV[2])
local state = KEYS[1]
local repairedAt, from, tenantsFrom = unpack(redis.call('HMGET', state, 'repairedAt', 'repairedTo', 'repairedTenants'))
repairedAt, from = tonumber(repairedAt or 0), tonumber(from or 0)
-- Most calls end here, before the definitions of the other parts.
if repairedAt <= now and now - repairedAt < tonumber(ARGV[3]) then
  return {}
end

--- @include "./rules.lua"

-- Numbers of unended invocations and (approximately) of tenants that one call looks at. Together they take Redis about 15 ms, in which it answers no
-- other command.
local INVOCATIONS_LOOKED_AT = 250
local TENANTS_LOOKED_AT = 150
-- Names that one SADD passes: Lua's stack holds about 8,000.
local NAMES_AT_ONCE = 1000
-- Time between two counts of all runtimes, ms. A count takes about 15 µs for each runtime.
local COUNT_MS = 60000

local jobs = prefix .. ':bull:invocations:'
-- Invocations whose jobs are in one of BullMQ's lists.
local inLists = {}
for _, id in ipairs(redis.call('LRANGE', jobs .. 'active', 0, -1)) do
  inLists[id] = true
end
for _, id in ipairs(redis.call('LRANGE', jobs .. 'wait', 0, -1)) do
  if redis.call('HEXISTS', prefix .. ':admission:ledger', id) == 1 then
    inLists[id] = true
  else
    redis.call('LREM', jobs .. 'wait', 1, id)
  end
end

local dropped, returned, lost = 0, 0, {}
local function backToQueue(id)
  local tenant, arrival = unpack(redis.call('HMGET', prefix .. ':invocation:' .. id, 'tenant', 'arrival'))
  if redis.call('EXISTS', jobs .. id) == 0 then
    lost[#lost + 1] = id
  else
    returned = returned + 1
    changeAdmission(prefix, now, function(a) enterQueue(a, tenant, id, arrival) end)
  end
end

local ledger = redis.call('HGETALL', prefix .. ':admission:ledger')
for i = 1, #ledger, 2 do
  local id = ledger[i]
  local status = redis.call('HGET', prefix .. ':invocation:' .. id, 'status')
  if status ~= 'queued' and status ~= 'running' then
    dropped = dropped + 1
    changeAdmission(prefix, now, function(a) leaveAdmission(a, nil, id) end)
  elseif status == 'queued' and not inLists[id] then
    backToQueue(id)
  end
end

local open = redis.call('ZRANGE', prefix .. ':deadlines', from, from + INVOCATIONS_LOOKED_AT - 1)
for _, id in ipairs(open) do
  local status, ownPrefix, tenant = unpack(redis.call('HMGET', prefix .. ':invocation:' .. id, 'status', 'prefix', 'tenant'))
  -- A child (without `prefix`) is in no queue.
  if status == 'queued' and ownPrefix and not inLists[id] and redis.call('HEXISTS', prefix .. ':admission:ledger', id) == 0
    and not redis.call('ZSCORE', prefix .. ':waiting:' .. tenant, id) and not redis.call('ZSCORE', prefix .. ':debounced', id) then
    backToQueue(id)
  end
end

-- Sums of the ledger's entries: of the platform, and of each tenant.
local slots, pages, tenants = 0, {}, {}
for _, text in ipairs(redis.call('HVALS', prefix .. ':admission:ledger')) do
  local entry = cjson.decode(text)
  local tenant = tenants[entry.tenant] or { running = 0 }
  tenants[entry.tenant] = tenant
  slots = slots + 1
  tenant.running = tenant.running + 1
  for model, count in pairs(entry.pages) do
    pages['pages:' .. model] = (pages['pages:' .. model] or 0) + count
    tenant['held:' .. model] = (tenant['held:' .. model] or 0) + count
  end
end

-- Take invocations that have begun or left the ledger out of the sets of those on their way, and remove the claims of those that left the ledger.
for _, id in ipairs(redis.call('SMEMBERS', prefix .. ':admission:' .. UNBEGUN)) do
  if redis.call('HGET', prefix .. ':invocation:' .. id, 'status') ~= 'queued' or redis.call('HEXISTS', prefix .. ':admission:ledger', id) == 0 then
    leaveWay(prefix .. ':admission:', id)
  end
end
for _, id in ipairs(redis.call('HKEYS', prefix .. ':admission:claims')) do
  if redis.call('HEXISTS', prefix .. ':admission:ledger', id) == 0 then
    redis.call('HDEL', prefix .. ':admission:claims', id)
  end
end

local sums = 0
-- Sets the fields of `expected` where they differ, and removes other fields that begin with `start`; counts both in `sums`.
local function check(key, start, expected)
  local fields, values = redis.call('HGETALL', key), {}
  for i = 1, #fields, 2 do
    values[fields[i]] = fields[i + 1]
    if string.sub(fields[i], 1, #start) == start and not expected[fields[i]] then
      sums = sums + 1
      redis.call('HDEL', key, fields[i])
    end
  end
  for field, value in pairs(expected) do
    if tonumber(values[field] or 0) ~= value then
      sums = sums + 1
      redis.call('HSET', key, field, value)
    end
  end
end
pages.slots = slots
check(state, 'pages:', pages)
local names = {}
for name in pairs(tenants) do
  names[#names + 1] = name
end
for i = 1, #names, NAMES_AT_ONCE do
  redis.call('SADD', prefix .. ':admission:tenants', unpack(names, i, math.min(#names, i + NAMES_AT_ONCE - 1)))
end
local cursor, some = unpack(redis.call('SSCAN', prefix .. ':admission:tenants', tenantsFrom or '0', 'COUNT', TENANTS_LOOKED_AT))
for _, name in ipairs(some) do
  if tenants[name] then
    -- When Redis lost the counts, the key may still carry an expiry.
    redis.call('PERSIST', prefix .. ':admission:tenant:' .. name)
  end
  check(prefix .. ':admission:tenant:' .. name, 'held:', tenants[name] or { running = 0 })
end
local a = openAdmission(prefix, now)
local countedAt = tonumber(redis.call('HGET', state, 'countedAt') or 0)
if a.leaving == 0 and countedAt <= now and now - countedAt < COUNT_MS then
  settleSome(a)
else
  recount(a)
end
-- Redis may have lost a change of the sets of sharers.
local sharers = {}
for _, field in ipairs(redis.call('HKEYS', prefix .. ':admission:capacity')) do
  local model = string.match(field, '^pages:(.*)$')
  if model then
    sharers[model] = prefix .. ':admission:sharers:' .. model
    for _, name in ipairs(redis.call('SRANDMEMBER', sharers[model], TENANTS_LOOKED_AT)) do
      if redis.call('SISMEMBER', prefix .. ':admission:tenants', name) == 0 then
        redis.call('SREM', sharers[model], name)
      end
    end
  end
end
for _, name in ipairs(some) do
  local shared = settle(a, name)
  for model, key in pairs(sharers) do
    redis.call(shared[model] and 'SADD' or 'SREM', key, name)
  end
end
admit(a)
closeAdmission(a)
local nextFrom = #open < INVOCATIONS_LOOKED_AT and 0 or from + INVOCATIONS_LOOKED_AT
redis.call('HSET', state, 'repairedAt', now, 'repairedTo', nextFrom, 'repairedTenants', cursor)
return { dropped, returned, sums, unpack(lost) }
