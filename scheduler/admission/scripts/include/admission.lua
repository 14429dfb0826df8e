--- @include "../../../quotas/scripts/include/limits.lua"

-- Who is admitted next; `admission/policy.ts` says the same in TypeScript, and a test holds one against the other. All of a script's work on it
-- stands between `openAdmission` and `closeAdmission`.
--
-- Keys, all beginning with `<prefix>:admission:`
--   capacity (hash): slots, `express` (slots of express runtimes, beside those), `pace` (how many tenants that hold more than few may fill), `hosts:<model>` and `spread`
--     (where several GPU hosts have it: a JSON list, and what their choice depends on), `starts` (how many may be admitted and not begun; as many again of tenants that hold few slots), `reserve` (part kept for tenants that hold little),
--     `pages:<model>`; both by `<model>@<host>` where several have it; `free:<model>` (a JSON list of {pages, readAt}: what each GPU host said last that it could give); `apart:<runtime>`: what a living runtime that takes no more still holds of all this, see capacity.lua
--   state (hash): `time` (virtual), `latest` (largest virtual time that any tenant has come to), `order` (how many were admitted so far), slots,
--     `express` (of these in the express lane), `pages:<model>` (all: admitted); `settling`: how far a settling of all tenants has come, `ownSlots`: for what it was begun
--   ledger (hash): admitted invocations, id to {tenant, at, share, pages, place (its place among those on their way to runtimes), lane (`express`, or none)}
--   starting (set): those of them that have not begun, in the ordinary lane; startingFew (set): those of these whose tenant held few slots;
--     startingExpress (set): those in the express lane
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
local openAdmission, closeAdmission, refreshCapacity, settle, settleAll, settleSome, admit, leaveLane

do
--- @include "./expected-pages.lua"
--- @include "./tenant-limits.lua"
-- A head is overtaken so often, then room is kept for it.
local MAX_OVERTAKEN = 8
-- Part of the slots that count as few of which a tenant's invocations take the express lane.
local EXPRESS = 1 / 8
-- Who has stood in the express lane for longer goes to the other one, ms.
local LANE_MS = 1000
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

local function pairsOf(list)
  local all = {}
  for i = 1, #list, 2 do
    all[list[i]] = list[i + 1]
  end
  return all
end

-- Fields that begin with `start`, as numbers by the rest of their names.
local function numbersBy(start, fields)
  local all = {}
  for name, value in pairs(fields) do
    if string.sub(name, 1, #start) == start then
      all[string.sub(name, #start + 1)] = tonumber(value)
    end
  end
  return all
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

function openAdmission(prefix, now)
  local base = prefix .. ':admission:'
  local state = pairsOf(redis.call('HGETALL', base .. 'state'))
  local capacity = pairsOf(redis.call('HGETALL', base .. 'capacity'))
  local a = {
    prefix = prefix,
    base = base,
    queue = prefix .. ':bull:invocations:',
    now = tonumber(now),
    time = tonumber(state.time or 0),
    latest = tonumber(state.latest or 0),
    order = tonumber(state.order or 0),
    settling = state.settling,
    settledSlots = tonumber(state.ownSlots or 0),
    usedSlots = tonumber(state.slots or 0),
    used = numbersBy('pages:', state),
    slots = tonumber(capacity.slots or 0),
    express = tonumber(capacity.express or 0),
    usedExpress = tonumber(state.express or 0),
    pace = tonumber(capacity.pace or 0),
    starts = tonumber(capacity.starts or 0),
    reserve = tonumber(capacity.reserve or 0),
    pages = numbersBy('pages:', capacity),
    spread = capacity.spread,
    hosts = {},
    free = {},
    apart = {},
    started = 0,
    limits = {},
  }
  for field, value in pairs(capacity) do
    local runtimeId = string.match(field, '^apart:(.*)$')
    if runtimeId then
      a.apart[runtimeId] = cjson.decode(value)
    elseif string.sub(field, 1, 6) == 'hosts:' then
      a.hosts[string.sub(field, 7)] = value
    elseif string.sub(field, 1, 5) == 'free:' then
      a.free[string.sub(field, 6)] = value
    end
  end
  reckonReserve(a)
  return a
end

function closeAdmission(a)
  redis.call('HSET', a.base .. 'state', 'time', exact(a.time), 'latest', exact(a.latest), 'order', exact(a.order))
end

local function lineOf(a, tenant)
  return a.prefix .. ':waiting:' .. tenant
end

local function recordOf(a, id)
  return a.prefix .. ':invocation:' .. id
end

local function openTenant(a, name)
  local key = a.base .. 'tenant:' .. name
  local tenant = { name = name, key = key, running = 0, finish = 0, held = {}, head = nil, need = {} }
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'running' or field == 'finish' then
      tenant[field] = tonumber(value)
    elseif field == 'head' then
      tenant.head = value
    elseif field == 'need' then
      tenant.need = cjson.decode(value)
    elseif field == 'short' then
      tenant.short = cjson.decode(value)
    elseif field ~= 'overtaken' then
      tenant.held[string.sub(field, 6)] = tonumber(value)
    end
  end
  return tenant
end

local function dropJob(a, id)
  local job = a.queue .. id
  redis.call('DEL', job, job .. ':lock', job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end

-- The first invocation of a line that still waits; others have no business there. `known` was looked at when it became the head.
local function headOf(a, tenant, known)
  local line = lineOf(a, tenant)
  local id = redis.call('ZRANGE', line, 0, 0)[1]
  while id and id ~= known and (redis.call('HGET', recordOf(a, id), 'status') ~= 'queued' or redis.call('EXISTS', a.queue .. id) == 0) do
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
  for _, held in pairs(tenant.held) do
    pages = pages + held
  end
  for _, needed in pairs(tenant.need) do
    pages = pages + needed
  end
  return pages <= limits.pages
end

local function leaveTurns(a, name)
  redis.call('ZREM', a.base .. 'turns', name)
  redis.call('ZREM', a.base .. 'modest', name)
  redis.call('ZREM', a.base .. 'kept', name)
end

-- Puts a tenant where it belongs after its line, its limits or what it holds have changed; `anew`: what its head needs is worked out again.
function settle(a, name, anew)
  local tenant = openTenant(a, name)
  local turns, modest = a.base .. 'turns', a.base .. 'modest'
  local head = headOf(a, name, tenant.head)
  if not head then
    leaveTurns(a, name)
    redis.call('HDEL', tenant.key, 'head', 'need', 'overtaken', 'short')
    if tenant.running == 0 then
      redis.call('SREM', a.base .. 'tenants', name)
      redis.call('PEXPIRE', tenant.key, FORGET_MS)
    end
    return
  end
  if head ~= tenant.head then
    tenant.need = placed(a, name, head, expectedPages(a, recordOf(a, head)))
    redis.call('HSET', tenant.key, 'head', head, 'need', cjson.encode(tenant.need), 'overtaken', 0)
    local since, pages = unpack(redis.call('HMGET', recordOf(a, head), 'shortAt', 'leastPages'))
    if since then
      local where = cjson.encode(placed(a, name, head, cjson.decode(pages)))
      redis.call('HSET', tenant.key, 'short', '{"since":' .. since .. ',"pages":' .. where .. '}')
    elseif tenant.short then
      redis.call('HDEL', tenant.key, 'short')
    end
    redis.call('ZREM', a.base .. 'kept', name)
  elseif anew then
    tenant.need = placed(a, name, head, expectedPages(a, recordOf(a, head)))
    redis.call('HSET', tenant.key, 'need', cjson.encode(tenant.need))
  end
  if not tenant.head then
    redis.call('PERSIST', tenant.key)
    redis.call('SADD', a.base .. 'tenants', name)
  end
  if not mayStart(a, tenant, tenantLimits(a, name)) then
    leaveTurns(a, name)
    return
  end
  local turn = redis.call('ZSCORE', turns, name)
  if not turn then
    -- Nobody waited: from here on all begin alike, whatever they held before.
    if redis.call('EXISTS', turns) == 0 then
      a.time = math.max(a.time, a.latest)
    end
    turn = exact(math.max(a.time, tenant.finish))
    redis.call('ZADD', turns, turn, name)
  end
  if tenant.running + 1 <= a.ownSlots then
    redis.call('ZADD', modest, turn, name)
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

--- @include "./lanes.lua"
--- @include "./choose.lua"
--- @include "./capacity.lua"
--- @include "./ledger.lua"
end
