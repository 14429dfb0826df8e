--- @include "../../../quotas/scripts/include/limits.lua"

-- Chooses the next invocation to admit. These scripts decide in production. `admission/policy.ts`, the oracle, states the same rules in plain
-- code; `policy-script.test.ts` plays random histories to both, and README.md says what to do when they differ. A script does all its
-- admission work between `openAdmission` and `closeAdmission`. `scheduler/keys.ts` describes the keys.

-- Suffixes of keys, and the prefix of a field of the capacity. Processes of the previous release use the same keys at the same time, so these
-- texts must not change.
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
--- @include "./fields.lua"
--- @include "./expected-pages.lua"
--- @include "./placement.lua"
--- @include "./chosen-key.lua"
--- @include "./tenant-limits.lua"
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
    unpack(redis.call('HMGET', base .. 'capacity', 'slots', 'pace', 'starts', 'reserve', 'overcommit', 'spread', 'first', 'leaving'))
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

-- Reads the fields of a head's record that admission uses; expected-pages.lua explains those that determine the expected pages.
local function readHead(a, id)
  local head = {}
  head.status, head.declared, head.first, head.least, head.learnedKey, head.shortAt, head.memory, head.affinity, head.placement,
    head.latency = unpack(redis.call('HMGET', recordOf(a, id), 'status', 'declaredPages', 'firstModel', 'leastPages', 'learnedKey',
    'shortAt', 'expectedMemory', 'affinity', 'placement', 'latency'))
  return head
end

-- Returns the placement key of an invocation, with placement by invocation (`placementKey` in ../../../policies/placement.ts): the GPU hosts that
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

--- @include "./on-the-way.lua"
--- @include "./choose.lua"
--- @include "./capacity.lua"
--- @include "./ledger.lua"
end
