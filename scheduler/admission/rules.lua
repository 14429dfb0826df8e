-- The rules of admission.
--- @include "../quotas/limits.lua"

-- Learns from runs how many KV pages a function version holds. A hash keeps the last 64 peaks of each model (`peaks:<model>`, numbers
-- separated by spaces). Their 95th percentile by nearest rank (`pages:<model>`; with up to 19 peaks, the largest) is the expectation for the
-- next run, so that one unusual run among many changes nothing. `runs` counts the runs. Memory is learned in the same way, under the name `#memory`,
-- in MiB.
local learnPeaks

do
-- Peaks kept for each model.
local KEPT = 64

-- Returns the sample of a rank; the largest sample has rank 1. Keeps only the largest ones in order, since the rank is 4 at most.
local function largest(samples, rank)
  local top = {}
  for _, sample in ipairs(samples) do
    local at = #top
    while at > 0 and top[at] < sample do
      at = at - 1
    end
    if at < rank then
      table.insert(top, at + 1, sample)
      top[rank + 1] = nil
    end
  end
  return top[rank]
end

-- Adds the peaks of `runs` of one version, in order: each run is a table from model to the most that it held. A run that does
-- not name a model of earlier runs counts as 0 for that model. Redis forgets the hash `retentionMs` after the last run.
function learnPeaks(key, runs, retentionMs)
  local known, models = {}, {}
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    known[fields[i]] = fields[i + 1]
    models[string.match(fields[i], '^peaks:(.*)$') or ''] = true
  end
  models[''] = nil
  local samples = {}
  for i, run in ipairs(runs) do
    for model in pairs(run) do
      models[model] = true
    end
    for model in pairs(models) do
      if not samples[model] then
        samples[model] = {}
        for sample in string.gmatch(known['peaks:' .. model] or '', '%d+') do
          table.insert(samples[model], tonumber(sample))
        end
      end
      table.insert(samples[model], tonumber(run[model] or 0))
      if #samples[model] > KEPT then
        table.remove(samples[model], 1)
      end
    end
  end
  local learned = { 'runs', tonumber(known.runs or 0) + #runs }
  for model, some in pairs(samples) do
    for _, value in ipairs({ 'peaks:' .. model, table.concat(some, ' '), 'pages:' .. model, largest(some, #some - math.ceil(0.95 * #some) + 1) }) do
      learned[#learned + 1] = value
    end
  end
  redis.call('HSET', key, unpack(learned))
  redis.call('PEXPIRE', key, retentionMs)
end
end

-- Chooses the next invocation to admit. These scripts decide in production. `testing/policy.ts`, the oracle, states the same rules in plain
-- code; `policy-script.test.ts` plays random histories to both, and README.md says what to do when they differ. A script does all its
-- admission work between `openAdmission` and `closeAdmission`. `scheduler/keys.ts` describes the keys.

-- Suffixes of keys, and the prefix of a field of the capacity.
-- Tenants that may start their head; the subset that may use the reserve of slots, and the subset for whose head room is kept.
local STARTABLE, RESERVE_USERS, ROOM_KEPT = 'turns', 'modest', 'kept'
-- Admitted invocations that have not begun, and the subset that may use the reserve of slots.
local UNBEGUN, UNBEGUN_RESERVE_USERS = 'starting', 'startingFew'
-- Pages and memory that a runtime still holds although it takes no more jobs.
local HELD_BY_LEAVING = 'apart:'

-- `changeAdmission` calls `openAdmission`, makes changes (`enterQueue`, `leaveAdmission`, `parkAdmitted`), admits and calls `closeAdmission`.
-- The functions of the second line below are for scripts that call `openAdmission` and `closeAdmission` themselves.
local changeAdmission, enterQueue, leaveAdmission, parkAdmitted, beginAdmitted
local openAdmission, closeAdmission, countRuntime, recount, settle, settleAll, settleSome, admit, leaveWay

do
--- @include "./needs.lua"
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

-- Admission keeps room for a head that heads of other tenants have overtaken this many times.
local MAX_OVERTAKEN = 8
-- Admission looks for a head that fits among this many tenants, in order of their turns.
local LOOK = 16
-- Time charged at an invocation's start, ms; admission charges the rest when the invocation leaves.
local LEAST_MS = 10
-- Maximum invocations that one script admits.
local MAX_STARTS = 256
-- Time after which Redis forgets a tenant without waiting or admitted invocations, ms.
local FORGET_MS = 3600000
-- An invocation that waited for memory may need this time after its admission, ms, to take its pages: `findsMemory` subtracts its claim from
-- the GPU hosts' reports up to then.
local CLAIM_MS = 2000
-- Number of tenants (SSCAN's COUNT) in one step of settling all tenants (see `settle`).
local SETTLED_AT_ONCE = 128

-- The text of a number that reads back as the same number: Lua's own conversion keeps only 14 digits.
local function exact(number)
  return string.format('%.17g', number)
end

-- Maximum of a resource that a tenant may hold and still count as one that holds little: half of the reserve of this resource, at least one.
local function smallShareOf(reserve)
  return reserve > 0 and math.max(1, math.floor(reserve / 2)) or 0
end

-- True when a tenant's head may use the reserve of slots: it has latency targets, or the tenant holds few slots.
local function mayUseReserve(a, tenant)
  return tenant.latency ~= nil or tenant.running + 1 <= a.smallSlots
end

-- Sets `reserveSlots`, and `smallSlots`: the maximum slots of a tenant that holds few.
local function reckonReserve(a)
  a.reserveSlots = math.floor(a.slots * a.reserve)
  a.smallSlots = smallShareOf(a.reserveSlots)
end

-- Pages of a model that are kept for tenants that hold little.
local function reservePages(a, model)
  return math.floor(a.pages[model] * a.reserve)
end

-- Maximum pages of a model that a tenant may hold and still count as one that holds little; nil for a model that no host has.
local function smallPages(a, model)
  return a.pages[model] and smallShareOf(reservePages(a, model))
end

-- Returns `a`, the state of a script's admission work. Scripts read sums and tenants here and in `openTenant`, change them only in `a`, and write
-- them in `closeAdmission`. They write sets, the ledger, the capacity and the progress of settling all tenants to Redis immediately.
function openAdmission(prefix, now)
  local base = prefix .. ':admission:'
  local a = {
    prefix = prefix,
    base = base,
    queue = prefix .. ':bull:invocations:',
    now = tonumber(now),
    used = fieldsOf(base .. 'state', 'pages:', tonumber),
    pages = fieldsOf(base .. 'capacity', 'pages:', tonumber),
    started = 0,
    limits = {},
    tenants = {},
    -- Models of which `used` has changed.
    changedUsed = {},
  }
  local state, capacity = {}, {}
  state.time, state.latest, state.order, state.settling, state.ownSlots, state.slots, state.hosts =
    unpack(redis.call('HMGET', base .. 'state', 'time', 'latest', 'order', 'settling', 'ownSlots', 'slots', 'hosts'))
  capacity.slots, capacity.pace, capacity.starts, capacity.reserve, capacity.overcommit, capacity.placement, capacity.first, capacity.leaving =
    unpack(redis.call('HMGET', base .. 'capacity', 'slots', 'pace', 'starts', 'reserve', 'overcommit', 'placement', 'first', 'leaving'))
  a.opened = state
  a.time = tonumber(state.time or 0)
  a.latest = tonumber(state.latest or 0)
  a.order = tonumber(state.order or 0)
  -- HMGET returns false for a missing field; `or nil` makes it nil.
  a.settling = state.settling or nil
  a.settledSmallSlots = tonumber(state.ownSlots or 0)
  a.usedSlots = tonumber(state.slots or 0)
  a.slots = tonumber(capacity.slots or 0)
  a.pace = tonumber(capacity.pace or 0)
  a.starts = tonumber(capacity.starts or 0)
  a.reserve = tonumber(capacity.reserve or 0)
  a.overcommit = tonumber(capacity.overcommit or 1)
  a.placement, a.first = capacity.placement or nil, capacity.first or nil
  a.leaving, a.hostsVersion = tonumber(capacity.leaving or nil), tonumber(state.hosts or nil)
  reckonReserve(a)
  return a
end

local function queueOf(a, tenant)
  return a.prefix .. ':waiting:' .. tenant
end

-- The jobs that a runtime holds (set): those whose field `pb` (BullMQ's `processedBy`) names it.
local function heldKey(a, runtimeId)
  return a.prefix .. ':runtime:' .. runtimeId .. ':held'
end

local function recordOf(a, id)
  return a.prefix .. ':invocation:' .. id
end

-- Returns the models that a tenant shares with others: those of which it has admitted pages, or of which its head needs some.
local function sharedModels(tenant)
  local shared = {}
  for model, count in pairs(tenant.held) do
    shared[model] = count > 0 and model ~= MEMORY or nil
  end
  for model, count in pairs(tenant.need) do
    if count > 0 and model ~= MEMORY then
      shared[model] = true
    end
  end
  return shared
end

-- Returns this script's copy of a tenant. `turn` is its score in STARTABLE: false for none, nil until the score is read; `moved` is set while a new
-- score is not written yet. These fields mark what `closeTenant` writes: `holdingsChanged` (running, finish, and `held` of the models in
-- `changedHeld`), `changedHome` (models of which `home` has changed), `headChanged`, `comes` and `goes` (the tenant's hash stays, or is
-- forgotten after a while).
local function openTenant(a, name)
  local tenant = a.tenants[name]
  if tenant then
    return tenant
  end
  tenant = { name = name, key = a.base .. 'tenant:' .. name, running = 0, finish = 0, overtaken = 0, held = {}, need = {}, changedHeld = {},
    home = {}, changedHome = {} }
  a.tenants[name] = tenant
  local fields = redis.call('HGETALL', tenant.key)
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'head' or field == 'displaced' then
      tenant[field] = value
    elseif field == 'need' or field == 'short' then
      tenant[field] = cjson.decode(value)
    elseif string.sub(field, 1, 5) == 'held:' then
      tenant.held[string.sub(field, 6)] = tonumber(value)
    elseif string.sub(field, 1, 5) == 'home:' then
      tenant.home[string.sub(field, 6)] = value
    else
      tenant[field] = tonumber(value)
    end
  end
  tenant.shared = sharedModels(tenant)
  return tenant
end

-- Updates the sets of the tenants that share a model, after a change of what the tenant holds or its head needs.
local function countSharer(a, tenant)
  local before = tenant.shared
  tenant.shared = sharedModels(tenant)
  for model in pairs(before) do
    if not tenant.shared[model] then
      redis.call('SREM', a.base .. 'sharers:' .. model, tenant.name)
    end
  end
  for model in pairs(tenant.shared) do
    if not before[model] then
      redis.call('SADD', a.base .. 'sharers:' .. model, tenant.name)
    end
  end
end

-- Collects the changed sums by model: fields to set, and fields to drop because their sum is zero.
local function changedSums(prefix, sums, changed, set, dropped)
  for model in pairs(changed) do
    if sums[model] == 0 then
      dropped[#dropped + 1] = prefix .. model
    else
      set[#set + 1] = prefix .. model
      set[#set + 1] = sums[model]
    end
  end
end

local function closeTenant(a, tenant)
  local set, dropped = {}, {}
  if tenant.holdingsChanged then
    set = { 'running', tenant.running, 'finish', tenant.finish }
    changedSums('held:', tenant.held, tenant.changedHeld, set, dropped)
  end
  for model in pairs(tenant.changedHome) do
    if tenant.home[model] then
      set[#set + 1] = 'home:' .. model
      set[#set + 1] = tenant.home[model]
    else
      dropped[#dropped + 1] = 'home:' .. model
    end
  end
  if tenant.headChanged and tenant.head then
    for field, value in pairs({ head = tenant.head, need = cjson.encode(tenant.need), overtaken = tenant.overtaken }) do
      set[#set + 1] = field
      set[#set + 1] = value
    end
    if tenant.short then
      set[#set + 1] = 'short'
      set[#set + 1] = cjson.encode(tenant.short)
    else
      dropped[#dropped + 1] = 'short'
    end
    for _, field in ipairs({ 'most', 'latency', 'displaced', 'displacedOvertaken', 'displacedKept' }) do
      if tenant[field] then
        set[#set + 1] = field
        set[#set + 1] = tenant[field]
      else
        dropped[#dropped + 1] = field
      end
    end
  elseif tenant.headChanged then
    for _, field in ipairs({ 'head', 'need', 'most', 'overtaken', 'short', 'latency', 'displaced', 'displacedOvertaken', 'displacedKept' }) do
      dropped[#dropped + 1] = field
    end
  end
  write(tenant.key, set, dropped)
  if tenant.comes then
    redis.call('PERSIST', tenant.key)
  end
  if tenant.goes then
    redis.call('PEXPIRE', tenant.key, FORGET_MS)
  end
end

function closeAdmission(a)
  for _, tenant in pairs(a.tenants) do
    closeTenant(a, tenant)
  end
  local set, dropped = {}, {}
  for field, value in pairs({ time = a.time, latest = a.latest, order = a.order, slots = a.usedSlots }) do
    if tonumber(a.opened[field] or 0) ~= value then
      set[#set + 1] = field
      set[#set + 1] = value
    end
  end
  changedSums('pages:', a.used, a.changedUsed, set, dropped)
  write(a.base .. 'state', set, dropped)
end

local function dropJob(a, id)
  local job = a.queue .. id
  redis.call('DEL', job, job .. ':lock', job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end

-- Reads the fields of a head's record that admission uses; needs.lua explains those that determine the expected pages.
local function readHead(a, id)
  local head = {}
  head.status, head.declared, head.first, head.least, head.learnedKey, head.shortAt, head.memory, head.affinity, head.placement,
    head.latency = unpack(redis.call('HMGET', recordOf(a, id), 'status', 'declaredPages', 'firstModel', 'leastPages', 'learnedKey',
    'shortAt', 'expectedMemory', 'affinity', 'placement', 'latency'))
  return head
end

-- Returns the placement key of an invocation, with placement by invocation (`placementKey` in ../policies/placement.ts): the GPU hosts that
-- the key prefers serve the invocation. Writes a key other than the id also to the record, for readers, and to the job, for the runtime.
local function placementOf(a, id, record, pages)
  local key = chosenKey(a, id, record.affinity, pages)
  if key ~= id then
    redis.call('HSET', recordOf(a, id), 'placement', key)
    redis.call('HSET', a.queue .. id, 'placement', key)
  elseif record.placement then
    redis.call('HDEL', recordOf(a, id), 'placement')
    redis.call('HDEL', a.queue .. id, 'placement')
  end
  return key
end

-- Decides which GPU hosts serve the head of a queue. Sets the pages that the head needs of them (`need`) and, after a requeue for lack of memory,
-- the pages that must be free (`short`).
local function placeHead(a, tenant, record)
  tenant.most = tenantLimits(a, tenant.name).pages
  local pages = expectedPages(a, record, tenant.most)
  local key = a.placement == 'invocation' and placementOf(a, tenant.head, record, pages) or nil
  tenant.need = placed(a, tenant, key, pages)
  tenant.short = record.shortAt and { since = tonumber(record.shortAt), pages = placed(a, tenant, key, cjson.decode(record.least)) } or nil
end

-- Returns the first invocation of a queue that still waits, and its record; drops the invocations before it, which no longer wait. `known` is
-- the present head: it was checked when it became the head, so its record is not read again.
local function headOf(a, tenant, known)
  local queue = queueOf(a, tenant)
  local id = redis.call('ZRANGE', queue, 0, 0)[1]
  while id and id ~= known do
    local record = readHead(a, id)
    if record.status == 'queued' and redis.call('EXISTS', a.queue .. id) == 1 then
      return id, record
    end
    redis.call('ZREM', queue, id)
    dropJob(a, id)
    id = redis.call('ZRANGE', queue, 0, 0)[1]
  end
  return id
end

-- True when the tenant's limits let its head start. A head that needs more than the page limit over all models starts when no other invocation
-- of the tenant is admitted.
local function mayStart(a, tenant, limits)
  if limits.suspended or (limits.concurrency and tenant.running >= limits.concurrency) then
    return false
  end
  if not limits.pages or tenant.running == 0 then
    return true
  end
  local pages = 0
  for model, held in pairs(tenant.held) do
    pages = pages + (model ~= MEMORY and held or 0)
  end
  for model, needed in pairs(tenant.need) do
    pages = pages + (model ~= MEMORY and needed or 0)
  end
  return pages <= limits.pages
end

local function leaveTurns(a, tenant)
  if tenant.turn ~= false and redis.call('ZREM', a.base .. STARTABLE, tenant.name) == 1 then
    redis.call('ZREM', a.base .. RESERVE_USERS, tenant.name)
    redis.call('ZREM', a.base .. ROOM_KEPT, tenant.name)
  end
  tenant.turn, tenant.moved = false, nil
end

local function takeTurn(a, tenant, turn)
  tenant.turn, tenant.moved = turn, nil
  redis.call('ZADD', a.base .. STARTABLE, turn, tenant.name)
end

local function turnOf(a, tenant)
  if tenant.turn == nil then
    tenant.turn = tonumber(redis.call('ZSCORE', a.base .. STARTABLE, tenant.name)) or false
  end
  return tenant.turn
end

local function settleHead(a, tenant, anew)
  local name = tenant.name
  local head, record = headOf(a, name, tenant.head)
  if not head then
    leaveTurns(a, tenant)
    tenant.headChanged = tenant.headChanged or tenant.head ~= nil
    tenant.head, tenant.short, tenant.latency, tenant.need, tenant.most, tenant.overtaken = nil, nil, nil, {}, nil, 0
    tenant.displaced, tenant.displacedOvertaken, tenant.displacedKept = nil, nil, nil
    tenant.goes = tenant.running == 0
    if tenant.goes then
      redis.call('SREM', a.base .. 'tenants', name)
    end
    return
  end
  if not tenant.head then
    tenant.comes = true
    redis.call('SADD', a.base .. 'tenants', name)
  end
  local keepsRoom = false
  tenant.goes = false
  if head ~= tenant.head then
    -- The overtakings of a displaced head count again when it returns.
    local overtaken = head == tenant.displaced and tenant.displacedOvertaken or 0
    keepsRoom = head == tenant.displaced and tenant.displacedKept ~= nil
    if record.latency and tenant.head and not tenant.latency and redis.call('ZSCORE', queueOf(a, name), tenant.head) then
      tenant.displaced, tenant.displacedOvertaken = tenant.head, tenant.overtaken
      tenant.displacedKept = redis.call('ZSCORE', a.base .. ROOM_KEPT, name) and 1 or nil
    end
    tenant.head, tenant.overtaken, tenant.headChanged = head, overtaken, true
    tenant.latency = record.latency and 1 or nil
    placeHead(a, tenant, record)
    if turnOf(a, tenant) then
      -- Room was kept only for the earlier head.
      redis.call('ZREM', a.base .. ROOM_KEPT, name)
    end
  elseif anew or tenant.most ~= tenantLimits(a, name).pages then
    placeHead(a, tenant, readHead(a, head))
    tenant.headChanged = true
  end
  if not mayStart(a, tenant, tenantLimits(a, name)) then
    leaveTurns(a, tenant)
    return
  end
  if not turnOf(a, tenant) then
    -- No tenant waited, so all start equal from now on, whatever they held before.
    if redis.call('EXISTS', a.base .. STARTABLE) == 0 then
      a.time = math.max(a.time, a.latest)
    end
    takeTurn(a, tenant, math.max(a.time, tenant.finish))
  elseif tenant.moved then
    takeTurn(a, tenant, tenant.turn)
  end
  if keepsRoom then
    redis.call('ZADD', a.base .. ROOM_KEPT, tenant.turn, name)
  end
  if mayUseReserve(a, tenant) then
    redis.call('ZADD', a.base .. RESERVE_USERS, tenant.turn, name)
  else
    redis.call('ZREM', a.base .. RESERVE_USERS, name)
  end
end

-- Settles a tenant: updates its head and turn, and the models that it shares, after a change of its queue, limits or holdings. With `anew`,
-- computes the head's need again even if the head stays the same. Returns the models that the tenant shares, as keys.
function settle(a, name, anew)
  local tenant = openTenant(a, name)
  settleHead(a, tenant, anew)
  countSharer(a, tenant)
  return tenant.shared
end

-- Settles the next tenants, if settling all tenants is in progress. Tenants that come meanwhile are settled when they enter.
function settleSome(a)
  if not a.settling then
    return
  end
  local state = a.base .. 'state'
  local cursor, names = unpack(redis.call('SSCAN', a.base .. 'tenants', a.settling, 'COUNT', SETTLED_AT_ONCE))
  for _, name in ipairs(names) do
    settle(a, name, true)
  end
  if cursor == '0' then
    a.settling = nil
    redis.call('HDEL', state, 'settling')
  else
    a.settling = cursor
    redis.call('HSET', state, 'settling', cursor)
  end
end

-- Begins to settle every tenant, because the capacity values that settling depends on have changed.
function settleAll(a)
  a.settling = '0'
  a.settledSmallSlots = a.smallSlots
  redis.call('HSET', a.base .. 'state', 'settling', a.settling, 'ownSlots', a.smallSlots)
  settleSome(a)
end

-- Invocations that are admitted and have not begun. Runtimes fetch them from BullMQ's list `wait`, and may begin them later.
-- `testing/policy.ts` has the same logic.

-- Counts the invocations on their way: those that may use the reserve, and the others. `a` caches the counts until an invocation leaves.
local function onTheWay(a)
  if not a.onTheWay then
    local reserveUsers = redis.call('SCARD', a.base .. UNBEGUN_RESERVE_USERS)
    a.onTheWay = { reserveUsers = reserveUsers, others = redis.call('SCARD', a.base .. UNBEGUN) - reserveUsers }
  end
  return a.onTheWay
end

local function enterWay(a, id, isReserveUser)
  local kind = isReserveUser and 'reserveUsers' or 'others'
  onTheWay(a)[kind] = onTheWay(a)[kind] + 1
  redis.call('SADD', a.base .. UNBEGUN, id)
  if isReserveUser then
    redis.call('SADD', a.base .. UNBEGUN_RESERVE_USERS, id)
  end
end

-- Returns true when the invocation was on its way.
function leaveWay(base, id)
  redis.call('SREM', base .. UNBEGUN_RESERVE_USERS, id)
  return redis.call('SREM', base .. UNBEGUN, id) == 1
end

-- Inserts an invocation that may use the reserve into BullMQ's list `wait` by its place. An invocation without latency targets also goes behind all
-- others of its tenant. Runtimes fetch from the right end, so the scan begins with the invocation that they fetch last. The scan is cheap, since
-- the list is short.
local function enterWait(a, tenant, id, place)
  local wait = a.queue .. 'wait'
  for _, other in ipairs(redis.call('LRANGE', wait, 0, -1)) do
    local text = redis.call('HGET', a.base .. 'ledger', other)
    local entry = text and cjson.decode(text)
    if entry and ((entry.tenant == tenant.name and not tenant.latency) or tonumber(entry.place) < place) then
      redis.call('LINSERT', wait, 'BEFORE', other, id)
      return
    end
  end
  redis.call('RPUSH', wait, id)
end

-- True when the tenant, counting its head's need, holds little of every model that the head needs.
local function holdsFewPages(a, tenant)
  for model, needed in pairs(tenant.need) do
    local most = smallPages(a, model)
    if most and (tenant.held[model] or 0) + needed > most then
      return false
    end
  end
  return true
end

-- Maximum runtimes whose loads a script reads for one place. More are not needed, since runtimes that share a GPU host report the same.
local REPORTERS = 16

-- Time for which Redis keeps the readings of a load, ms; a runtime stores a new load about once a second.
local READINGS_MS = 60000

-- Returns the free memory that a runtime reports in its load: a list of {process of the GPU host, model, pages, readAt in ms}. A load describes
-- every GPU host that the runtime reaches, and Redis takes about a millisecond to decode a load of 60 hosts. So the first script that decodes a load
-- stores these readings for the others.
local function readingsIn(a, runtimeId)
  local load = redis.call('GET', a.prefix .. ':runtime:' .. runtimeId .. ':alive')
  if not load then
    return {}
  end
  local key = a.prefix .. ':runtime:' .. runtimeId .. ':readings'
  local text = redis.call('GET', key)
  local known = text and cmsgpack.unpack(text)
  if known and known.load == load then
    return known.list
  end
  local list = {}
  for i, entry in ipairs(cjson.decode(load).models or {}) do
    list[i] = { entry.hostId, entry.model, entry.freePages + entry.cachedPages + entry.idlePages, entry.readAt }
  end
  -- A full Redis refuses the write; then the next script decodes the load again.
  redis.pcall('SET', key, cmsgpack.pack({ load = load, list = list }), 'PX', READINGS_MS)
  return list
end

-- Returns the last report of each GPU host of a place (`<model>` or `<model>@<host>`) as a list of {pages, readAt}: the pages that the host could
-- give without ending an inferlet. Returns nil when no host has reported.
local function readingsOf(a, place)
  local key, newest = a.base .. 'reporters:' .. place, {}
  local model, namesHost = string.match(place, '^[^@]+'), string.find(place, '@', 1, true)
  local reporters = redis.call('HLEN', key) <= REPORTERS and redis.call('HGETALL', key)
    or redis.call('HRANDFIELD', key, REPORTERS, 'WITHVALUES')
  a.loads = a.loads or readOnce(function(runtimeId) return readingsIn(a, runtimeId) end)
  for i = 1, #reporters, 2 do
    for _, entry in ipairs(a.loads[reporters[i]]) do
      local process, itsModel, pages, readAt = unpack(entry)
      local known = newest[process]
      if itsModel == model and (not namesHost or process == reporters[i + 1]) and (not known or known[2] < readAt) then
        newest[process] = { pages, readAt }
      end
    end
  end
  local list = {}
  for _, reading in pairs(newest) do
    list[#list + 1] = reading
  end
  return list[1] and list or nil
end

-- True when a tenant that takes `count` more pages of a place still has at most an equal part of the pages outside the reserve, among the tenants
-- that share the place. The GPU host takes pages back from tenants that hold more. Runtime memory cannot be taken back, and a tenant that is alone
-- on the platform has no other to take from. Beside other tenants its part is a half at most, since these may hold pages that nobody expected.
local function isWithinShare(a, tenant, model, count)
  local total = a.pages[model]
  if not total or model == MEMORY or redis.call('SCARD', a.base .. 'tenants') < 2 then
    return false
  end
  local sharers = math.max(2, redis.call('SCARD', a.base .. 'sharers:' .. model))
  return (tenant.held[model] or 0) + count <= math.floor((total - reservePages(a, model)) / sharers)
end

-- True when a GPU host has reported enough memory since a head was requeued for lack of memory (`short`). Claims of invocations that started
-- this way and may not hold their pages yet reduce the report. Also true when no invocation is admitted, when no GPU host reports, or when the
-- tenant then holds at most its share.
local function findsMemory(a, tenant)
  if a.usedSlots == 0 then
    return true
  end
  local claims, short = nil, tenant.short
  a.readings = a.readings or readOnce(function(place) return readingsOf(a, place) end)
  for model, needed in pairs(short.pages) do
    local readings = not isWithinShare(a, tenant, model, needed) and a.readings[model]
    if readings then
      claims = claims or redis.call('HVALS', a.base .. 'claims')
      local found = false
      for _, reading in ipairs(readings) do
        local pages, readAt = unpack(reading)
        for _, text in ipairs(claims) do
          local claim = cjson.decode(text)
          pages = pages - (claim.at + CLAIM_MS > readAt and claim.pages[model] or 0)
        end
        found = found or (readAt > short.since and pages >= needed)
      end
      if not found then
        return false
      end
    end
  end
  return true
end

-- True when a head fits into the room left, or within its tenant's share. A head with kept room also fits while its tenant is within its share
-- without it. Only tenants that hold little, and heads with latency targets or kept room, may use the reserve.
local function fits(a, tenant, left, isRoomKept)
  local slots = left.slots
  if not isRoomKept and not mayUseReserve(a, tenant) then
    slots = left.ordinary
  end
  if slots < 1 or (tenant.short and not findsMemory(a, tenant)) then
    return false
  end
  for model, needed in pairs(tenant.need) do
    local room = left.pages[model]
    -- A head of any size fits into a pool that no admitted invocation and no kept head uses.
    if room and room ~= a.pages[model] and not isWithinShare(a, tenant, model, isRoomKept and 0 or needed) then
      if not isRoomKept and not tenant.latency and (tenant.held[model] or 0) + needed > smallPages(a, model) then
        room = room - reservePages(a, model)
      end
      if needed > room then
        return false
      end
    end
  end
  return true
end

-- Returns the tenant whose head starts next (nil for none), and the tenants passed over because their heads do not fit.
local function chooseNext(a)
  local ordinary = math.min(a.slots - a.reserveSlots, a.pace)
  local left = { slots = a.slots - a.usedSlots, ordinary = ordinary - a.usedSlots, pages = readOnce(function(model)
    return a.pages[model] and a.pages[model] - (a.used[model] or 0)
  end) }
  local reserveUsers, others = onTheWay(a).reserveUsers, onTheWay(a).others
  if left.slots < 1 or (reserveUsers >= a.starts and others >= a.starts) then
    return nil
  end
  -- True when `starts` invocations of the head's kind (those that may use the reserve, or the others) are already on their way. Then no room is
  -- kept for the head, and it is not overtaken.
  local function mustWait(tenant)
    return (mayUseReserve(a, tenant) and reserveUsers or others) >= a.starts
  end
  local seen, passed = {}, {}
  -- Returns the first of these tenants whose head fits. Until then, the need of each head with kept room counts as taken.
  local function look(names, isRoomKept)
    for _, name in ipairs(names) do
      if not seen[name] then
        seen[name] = true
        local tenant = openTenant(a, name)
        local isCandidate = not mustWait(tenant)
        if isCandidate and fits(a, tenant, left, isRoomKept) then
          return tenant
        end
        if isCandidate and isRoomKept then
          left.slots = left.slots - 1
          left.ordinary = left.ordinary - 1
          for model, needed in pairs(tenant.need) do
            left.pages[model] = left.pages[model] and left.pages[model] - needed
          end
        elseif isCandidate then
          passed[#passed + 1] = tenant
        end
      end
    end
  end
  local chosen = look(redis.call('ZRANGE', a.base .. ROOM_KEPT, 0, LOOK - 1), true)
  if not chosen and left.ordinary >= 1 then
    chosen = look(redis.call('ZRANGE', a.base .. STARTABLE, 0, LOOK - 1), false)
  end
  if not chosen and left.slots >= 1 and a.reserveSlots > 0 then
    chosen = look(redis.call('ZRANGE', a.base .. RESERVE_USERS, 0, LOOK - 1), false)
  end
  return chosen, passed
end

-- True when a tenant already holds an equal part, among `waitingTenantCount` tenants, of a pool that its head needs.
local function holdsItsPart(a, tenant, waitingTenantCount)
  for model in pairs(tenant.need) do
    local held, total = tenant.held[model] or 0, a.pages[model]
    if total and held > 0 and held * waitingTenantCount >= total then
      return true
    end
  end
  return false
end

-- Counts an overtaking for every head passed over. A start of a tenant that holds few pages does not overtake a head that needs only few: that head
-- may use the reserve itself, unless its own tenant holds too much.
local function countOvertaken(a, chosen, passed)
  local fewPages = holdsFewPages(a, chosen)
  local waitingTenantCount = #passed > 0 and redis.call('ZCARD', a.base .. STARTABLE)
  for _, tenant in ipairs(passed) do
    local isSmall = true
    for model, needed in pairs(tenant.need) do
      isSmall = isSmall and needed <= (smallPages(a, model) or needed)
    end
    if not (fewPages and isSmall) then
      tenant.overtaken, tenant.headChanged = tenant.overtaken + 1, true
      if tenant.overtaken >= MAX_OVERTAKEN and not holdsItsPart(a, tenant, waitingTenantCount) then
        redis.call('ZADD', a.base .. ROOM_KEPT, turnOf(a, tenant), tenant.name)
      end
    end
  end
end

--- @include "./capacity.lua"
end
