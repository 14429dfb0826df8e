--- @include "../../../quotas/scripts/include/limits.lua"

-- Who is admitted next; `admission/policy.ts` says the same in TypeScript, and a test holds one against the other. All of a script's work on it
-- stands between `openAdmission` and `closeAdmission`.
--
-- Keys, all beginning with `<prefix>:admission:`
--   capacity (hash): slots, `pace` (how many tenants that hold more than few may fill), `hosts:<model>` and `spread`
--     (where several GPU hosts have it: a JSON list, and what their choice depends on), `starts` (how many may be admitted and not begun; as many again of tenants that hold few slots), `reserve` (part kept for tenants that hold little),
--     `pages:<model>`, memory of runtimes in MiB among them (`pages:#memory`, everywhere that pages stand); both by `<model>@<host>` where several have it; `free:<model>` (a JSON list of {pages, readAt}: what each GPU host said last that it could give); `apart:<runtime>`: what a living runtime that takes no more still holds of all this, see capacity.lua
--   state (hash): `time` (virtual), `latest` (largest virtual time that any tenant has come to), `order` (how many were admitted so far), slots, `pages:<model>` (all: admitted); `settling`: how far a settling of all tenants has come, `ownSlots`: for what it was begun
--   ledger (hash): admitted invocations, id to {tenant, at, share, pages, place (its place among those on their way to runtimes)}
--   starting (set): those of them that have not begun; startingFew (set): those of these whose tenant held few slots
--   claims (hash): those of them that waited for memory, id to {at, pages}
--   tenant:<tenant> (hash): running, `finish` (virtual time it has come to); of the head of its line: head, need, overtaken,
--     `short` ({pages, since}, when it was requeued for want of memory); and `held:<model>`
--   tenants (set): those with anything that waits or is admitted
--   turns (sorted set): tenants whose head may start as far as they themselves go, by virtual start time
--   modest (sorted set): those of them that hold few slots;  kept (sorted set): those for whose head room is kept
-- `<prefix>:waiting:<tenant>` (sorted set): its line, by arrival. A line's invocations are BullMQ jobs in none of BullMQ's lists.

-- For scripts that change one thing: each opens, changes, admits and closes.
local enterLine, leaveAdmission, beginAdmitted
-- For those that change several.
local openAdmission, closeAdmission, refreshCapacity, settle, settleAll, settleSome, admit, leaveWay

do
--- @include "./expected-pages.lua"
--- @include "./tenant-limits.lua"
-- A head is overtaken so often, then room is kept for it.
local MAX_OVERTAKEN = 8
-- So many tenants are looked at for one whose head fits, in order of their turns.
local LOOK = 16
-- What an invocation is charged for at its start, ms; the rest of its time is charged when it leaves.
local LEAST_MS = 10
-- One script admits no more than this.
local MAX_STARTS = 256
-- A tenant that neither waits nor runs is forgotten after this, ms.
local FORGET_MS = 3600000
-- What started on a GPU host's word for its memory holds that memory after this, ms.
local CLAIM_MS = 2000
-- About so many tenants are settled in one step, of all.
local SETTLED_AT_ONCE = 128

local function exact(number)
  return string.format('%.17g', number)
end

-- How much of a resource a tenant holds at most while it counts as one that holds little.
local function ownOf(reserve)
  return reserve > 0 and math.max(1, math.floor(reserve / 2)) or 0
end

local function reckonReserve(a)
  a.reserveSlots = math.floor(a.slots * a.reserve)
  a.ownSlots = ownOf(a.reserveSlots)
  a.reservePages, a.ownPages = {}, {}
  for model, total in pairs(a.pages) do
    a.reservePages[model] = math.floor(total * a.reserve)
    a.ownPages[model] = ownOf(a.reservePages[model])
  end
end

-- Everything that a script needs is read here and when a tenant is first looked at, is changed in `a` alone, and is written by `closeAdmission`.
function openAdmission(prefix, now)
  local base = prefix .. ':admission:'
  local a = {
    prefix = prefix,
    base = base,
    queue = prefix .. ':bull:invocations:',
    now = tonumber(now),
    used = {},
    pages = {},
    hosts = {},
    free = {},
    apart = {},
    started = 0,
    limits = {},
    tenants = {},
    -- Models of which `used` has changed.
    reused = {},
  }
  local state, fields = {}, redis.call('HGETALL', base .. 'state')
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if string.sub(field, 1, 6) == 'pages:' then
      a.used[string.sub(field, 7)] = tonumber(value)
    else
      state[field] = value
    end
  end
  local capacity = {}
  fields = redis.call('HGETALL', base .. 'capacity')
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    local kind, name = string.match(field, '^(%l+):(.*)$')
    if not kind then
      capacity[field] = value
    elseif kind == 'pages' then
      a.pages[name] = tonumber(value)
    elseif kind == 'apart' then
      a.apart[name] = cjson.decode(value)
    elseif kind == 'hosts' or kind == 'free' then
      a[kind][name] = value
    end
  end
  a.opened = state
  a.time = tonumber(state.time or 0)
  a.latest = tonumber(state.latest or 0)
  a.order = tonumber(state.order or 0)
  a.settling = state.settling
  a.settledSlots = tonumber(state.ownSlots or 0)
  a.usedSlots = tonumber(state.slots or 0)
  a.slots = tonumber(capacity.slots or 0)
  a.pace = tonumber(capacity.pace or 0)
  a.starts = tonumber(capacity.starts or 0)
  a.reserve = tonumber(capacity.reserve or 0)
  a.spread = capacity.spread
  reckonReserve(a)
  return a
end

local function lineOf(a, tenant)
  return a.prefix .. ':waiting:' .. tenant
end

local function recordOf(a, id)
  return a.prefix .. ':invocation:' .. id
end

-- A tenant as this script has it. `turn` is its place in the turns, false for none, nil as long as nobody has asked; `moved` when that is not written
-- yet. What is to be written at the end: `holds` (running, finish, and `held` of the models in `reheld`), `headChanged`, `comes` and `goes` (to and from
-- those with anything that waits or is admitted).
local function openTenant(a, name)
  local tenant = a.tenants[name]
  if tenant then
    return tenant
  end
  tenant = { name = name, key = a.base .. 'tenant:' .. name, running = 0, finish = 0, overtaken = 0, held = {}, need = {}, reheld = {} }
  a.tenants[name] = tenant
  local fields = redis.call('HGETALL', tenant.key)
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'head' then
      tenant.head = value
    elseif field == 'need' or field == 'short' then
      tenant[field] = cjson.decode(value)
    elseif string.sub(field, 1, 5) == 'held:' then
      tenant.held[string.sub(field, 6)] = tonumber(value)
    else
      tenant[field] = tonumber(value)
    end
  end
  return tenant
end

-- Sums by model that have changed: the fields to set and those to drop, since there are none of zero.
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

local function write(key, set, dropped)
  if #set > 0 then
    redis.call('HSET', key, unpack(set))
  end
  if #dropped > 0 then
    redis.call('HDEL', key, unpack(dropped))
  end
end

local function closeTenant(a, tenant)
  local set, dropped = {}, {}
  if tenant.holds then
    set = { 'running', tenant.running, 'finish', tenant.finish }
    changedSums('held:', tenant.held, tenant.reheld, set, dropped)
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
  elseif tenant.headChanged then
    for _, field in ipairs({ 'head', 'need', 'overtaken', 'short' }) do
      dropped[#dropped + 1] = field
    end
  end
  write(tenant.key, set, dropped)
  if tenant.comes then
    redis.call('PERSIST', tenant.key)
    redis.call('SADD', a.base .. 'tenants', tenant.name)
  end
  if tenant.goes then
    redis.call('SREM', a.base .. 'tenants', tenant.name)
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
  changedSums('pages:', a.used, a.reused, set, dropped)
  write(a.base .. 'state', set, dropped)
end

local function dropJob(a, id)
  local job = a.queue .. id
  redis.call('DEL', job, job .. ':lock', job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end

-- What the record of a head says that admission heeds: `status` and the rest as expected-pages.lua names it.
local function readHead(a, id)
  local head = {}
  head.status, head.declared, head.first, head.least, head.learnedKey, head.shortAt, head.memory = unpack(redis.call('HMGET', recordOf(a, id), 'status',
    'declaredPages', 'firstModel', 'leastPages', 'learnedKey', 'shortAt', 'expectedMemory'))
  return head
end

-- The first invocation of a line that still waits, and its record where that was read; others have no business there. `known` was looked at when
-- it became the head.
local function headOf(a, tenant, known)
  local line = lineOf(a, tenant)
  local id = redis.call('ZRANGE', line, 0, 0)[1]
  while id and id ~= known do
    local record = readHead(a, id)
    if record.status == 'queued' and redis.call('EXISTS', a.queue .. id) == 1 then
      return id, record
    end
    redis.call('ZREM', line, id)
    dropJob(a, id)
    id = redis.call('ZRANGE', line, 0, 0)[1]
  end
  return id
end

-- Whether the tenant's own limits let its head start. What it alone could never hold starts when it holds nothing: its end says why.
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
  if tenant.turn ~= false and redis.call('ZREM', a.base .. 'turns', tenant.name) == 1 then
    redis.call('ZREM', a.base .. 'modest', tenant.name)
    redis.call('ZREM', a.base .. 'kept', tenant.name)
  end
  tenant.turn, tenant.moved = false, nil
end

local function takeTurn(a, tenant, turn)
  tenant.turn, tenant.moved = turn, nil
  redis.call('ZADD', a.base .. 'turns', turn, tenant.name)
end

-- Its place in the turns, or false.
local function turnOf(a, tenant)
  if tenant.turn == nil then
    tenant.turn = tonumber(redis.call('ZSCORE', a.base .. 'turns', tenant.name)) or false
  end
  return tenant.turn
end

-- Puts a tenant where it belongs after its line, its limits or what it holds have changed; `anew`: what its head needs is worked out again.
function settle(a, name, anew)
  local tenant = openTenant(a, name)
  local modest = a.base .. 'modest'
  local head, record = headOf(a, name, tenant.head)
  if not head then
    leaveTurns(a, tenant)
    tenant.headChanged = tenant.headChanged or tenant.head ~= nil
    tenant.head, tenant.short, tenant.need, tenant.overtaken = nil, nil, {}, 0
    tenant.goes = tenant.running == 0
    return
  end
  if not tenant.head then
    tenant.comes = true
  end
  tenant.goes = false
  if head ~= tenant.head then
    tenant.head, tenant.overtaken, tenant.headChanged = head, 0, true
    tenant.need = placed(a, name, head, expectedPages(a, record))
    tenant.short = record.shortAt and { since = tonumber(record.shortAt), pages = placed(a, name, head, cjson.decode(record.least)) } or nil
    if turnOf(a, tenant) then
      redis.call('ZREM', a.base .. 'kept', name)
    end
  elseif anew then
    tenant.need = placed(a, name, head, expectedPages(a, readHead(a, head)))
    tenant.headChanged = true
  end
  if not mayStart(a, tenant, tenantLimits(a, name)) then
    leaveTurns(a, tenant)
    return
  end
  if not turnOf(a, tenant) then
    -- Nobody waited: from here on all begin alike, whatever they held before.
    if redis.call('EXISTS', a.base .. 'turns') == 0 then
      a.time = math.max(a.time, a.latest)
    end
    takeTurn(a, tenant, math.max(a.time, tenant.finish))
  elseif tenant.moved then
    takeTurn(a, tenant, tenant.turn)
  end
  if tenant.running + 1 <= a.ownSlots then
    redis.call('ZADD', modest, tenant.turn, name)
  else
    redis.call('ZREM', modest, name)
  end
end

-- Goes on with settling all tenants, if that is under way; those that come meanwhile settle by themselves.
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

-- Begins to settle every tenant: what they were settled by has changed.
function settleAll(a)
  a.settling = '0'
  a.settledSlots = a.ownSlots
  redis.call('HSET', a.base .. 'state', 'settling', a.settling, 'ownSlots', a.ownSlots)
  settleSome(a)
end

--- @include "./on-the-way.lua"
--- @include "./choose.lua"
--- @include "./capacity.lua"
--- @include "./ledger.lua"
end
