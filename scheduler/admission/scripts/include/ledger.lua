-- The largest fraction that an invocation takes of any resource of the platform.
local function shareOf(a, need)
  local share = 1 / a.slots
  for model, needed in pairs(need) do
    local total = a.pages[model]
    if total then
      share = math.max(share, total > 0 and needed / total or 1)
    end
  end
  return math.min(share, 1)
end

-- Adds an invocation to the sums of the platform and of its tenant (sign 1), or takes it away (-1).
local function addUsed(a, tenant, pages, sign)
  a.usedSlots = a.usedSlots + sign
  tenant.running, tenant.holdingsChanged = tenant.running + sign, true
  for model, count in pairs(pages) do
    a.used[model], a.changedUsed[model] = (a.used[model] or 0) + sign * count, true
    tenant.held[model], tenant.changedHeld[model] = (tenant.held[model] or 0) + sign * count, true
  end
end

-- Returns the pages that admission counts for an invocation: at most all pages outside the reserve, so that it alone keeps no newcomer out.
local function countedPages(a, need)
  local counted = {}
  for model, needed in pairs(need) do
    local most = a.pages[model] and math.min(needed, a.pages[model] - reservePages(a, model)) or needed
    counted[model] = most > 0 and most or nil
  end
  return counted
end

-- Moves an invocation from its queue into the ledger. Charges its tenant `LEAST_MS`, from the virtual start time `turn` on.
local function enterLedger(a, tenant, id, need, turn, place)
  local share = shareOf(a, need)
  local counted = countedPages(a, need)
  local finish = turn + share * LEAST_MS / tenantLimits(a, tenant.name).weight
  a.latest = math.max(a.latest, finish)
  redis.call('ZREM', queueOf(a, tenant.name), id)
  redis.call('HSET', a.base .. 'ledger', id, cjson.encode({ tenant = tenant.name, at = a.now, share = exact(share), pages = counted,
    place = exact(place) }))
  addUsed(a, tenant, counted, 1)
  tenant.finish = finish
end

-- Admits the head of a tenant's queue: adds it to the ledger and to the list from which runtimes fetch. In that list, a head that may use the
-- reserve goes ahead of up to `starts` others.
local function startHead(a, tenant)
  local id, turn = tenant.head, turnOf(a, tenant)
  local ahead = mayUseReserve(a, tenant)
  a.order = a.order + 1
  local place = ahead and a.order - a.starts or a.order
  a.time = math.max(a.time, turn)
  a.started = a.started + 1
  enterLedger(a, tenant, id, tenant.need, turn, place)
  tenant.turn, tenant.moved = tenant.finish, true
  enterWay(a, id, ahead)
  if tenant.short then
    redis.call('HSET', a.base .. 'claims', id, cjson.encode({ at = a.now, pages = tenant.short.pages }))
  end
  if ahead then
    enterWait(a, tenant, id, place)
  else
    redis.call('LPUSH', a.queue .. 'wait', id)
  end
  -- As in BullMQ, the marker wakes a fetcher that waits for jobs. BullMQ also adds an event, which has no listener here.
  redis.call('ZADD', a.queue .. 'marker', 0, '0')
  settle(a, tenant.name)
end

-- Admits every head that may start.
function admit(a)
  while a.started < MAX_STARTS do
    local chosen, passed = chooseNext(a)
    if not chosen then
      return
    end
    -- Count first: `startHead` replaces the head of `chosen`.
    countOvertaken(a, chosen, passed)
    startHead(a, chosen)
  end
end

-- Takes an invocation out of the ledger, and charges its tenant for the time since its admission. Returns the tenant's name, or nil when the
-- ledger does not have the invocation.
local function leaveLedger(a, id)
  local text = redis.call('HGET', a.base .. 'ledger', id)
  if not text then
    return nil
  end
  local entry = cjson.decode(text)
  local tenant = openTenant(a, entry.tenant)
  redis.call('HDEL', a.base .. 'ledger', id)
  leaveWay(a.base, id)
  a.onTheWay = nil
  redis.call('HDEL', a.base .. 'claims', id)
  addUsed(a, tenant, entry.pages, -1)
  leaveLeaving(a, id, entry.pages)
  local charge = tonumber(entry.share) * math.max(0, a.now - entry.at - LEAST_MS) / tenantLimits(a, entry.tenant).weight
  if charge > 0 then
    tenant.finish = tenant.finish + charge
    a.latest = math.max(a.latest, tenant.finish)
    -- `settle` updates the tenant's score in RESERVE_USERS.
    tenant.turn = tonumber(redis.call('ZADD', a.base .. STARTABLE, 'XX', 'INCR', charge, entry.tenant)) or false
    if tenant.turn then
      redis.call('ZADD', a.base .. ROOM_KEPT, 'XX', 'INCR', charge, entry.tenant)
    end
  end
  return entry.tenant
end

-- Calls `change` for all changes of a script, and then admits every head that may start.
function changeAdmission(prefix, now, change)
  local a = openAdmission(prefix, now)
  change(a)
  admit(a)
  closeAdmission(a)
end

-- Removes an ended invocation from its queue, the ledger and BullMQ's lists. `tenant` is nil when the record is gone. `holder` is the runtime
-- that ended the invocation and is done with the job; nil for any other end. A job that a runtime still holds stays until that
-- runtime hands it in.
function leaveAdmission(a, tenant, id, holder)
  if tenant and redis.call('ZREM', queueOf(a, tenant), id) == 1 then
    dropJob(a, id)
  else
    tenant = leaveLedger(a, id) or tenant
    local held = redis.call('HGET', a.queue .. id, 'pb')
    if not held then
      redis.call('LREM', a.queue .. 'wait', 1, id)
      dropJob(a, id)
    elseif held == holder then
      -- Search from the tail, where the oldest jobs are.
      redis.call('LREM', a.queue .. 'active', -1, id)
      redis.call('SREM', a.queue .. 'stalled', id)
      redis.call('SREM', heldKey(a, held), id)
      dropJob(a, id)
    end
  end
  if tenant then
    settle(a, tenant)
  end
end

-- Records that no runtime holds the invocation's job any more.
local function leaveHolder(a, id)
  local holder = redis.call('HGET', a.queue .. id, 'pb')
  if holder then
    redis.call('SREM', heldKey(a, holder), id)
    redis.call('HDEL', a.queue .. id, 'pb', 'processedOn')
  end
end

-- Takes an invocation that waits for a person out of the ledger. Its job stays, in none of BullMQ's lists.
function parkAdmitted(a, id)
  local tenant = leaveLedger(a, id)
  leaveHolder(a, id)
  if tenant then
    settle(a, tenant)
  end
end

-- Puts an invocation into its tenant's queue by arrival: a new one, or one that comes back from a runtime.
function enterQueue(a, tenant, id, arrival)
  leaveLedger(a, id)
  leaveHolder(a, id)
  redis.call('ZADD', queueOf(a, tenant), arrival, id)
  settle(a, tenant)
end

-- Records that attempts have begun, and admits other invocations, for which there is room on the way to runtimes now.
function beginAdmitted(prefix, ids, now)
  local base, begun = prefix .. ':admission:', false
  for _, id in ipairs(ids) do
    begun = leaveWay(base, id) or begun
  end
  if begun and redis.call('EXISTS', base .. STARTABLE) == 1 then
    changeAdmission(prefix, now, function() end)
  end
end
