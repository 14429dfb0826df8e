-- What runtimes offer, and what admitted invocations hold of it.

-- Sums of the runtimes' offers (what a runtime adds to the capacity, see `offerOf`). A script adds or subtracts the offer
-- of one runtime; `recount` alone reads all runtimes.
--
-- A place is a model, `<model>`, or a model on one of several GPU hosts, `<model>@<host>`, since one host serves an inferlet. A pool is the
-- pages of a place in one process of a GPU host; they count once, however many runtimes share the process. A kind is the text of those settings of
-- a runtime that hold for the whole platform (`recount` combines all kinds): `<overcommit> <reserve> <1 with a memory limit, else 0> <placement>`.

-- Default maximum of invocations on their way to a runtime: enough to keep it busy, and few enough that later ones do not wait long behind them.
local STARTS = 8

-- Returns the offer of a runtime that takes jobs: {kind, slots, pace, starts, memory in MiB, {{pool, place, pages, process}...}}.
local function offerOf(description)
  local pools, placement = {}, ''
  for i, model in ipairs(description.models or {}) do
    local place = model.host and model.name .. '@' .. model.host or model.name
    pools[i] = { (model.hostId or description.id) .. ' ' .. place, place, model.pageCount, model.hostId or '' }
    placement = model.host and description.placement or placement
  end
  local kind = table.concat({ exact(description.overcommit or 1), exact(description.reserve or 0), description.memoryMb and 1 or 0, placement }, ' ')
  return { kind, description.slots, description.pace or description.slots, description.starts or STARTS, description.memoryMb or 0, pools }
end

-- Returns the counts that `addOffer` changes. The fields from `slots` to `memory` are differences to the sums. The tables `kinds`, `pools` and
-- `places` are as in Redis, or empty when `isEmpty`. `before` has, for each changed entry, its first number (a count) before the change.
local function openCounts(a, isEmpty)
  local counts = { slots = 0, pace = 0, starts = 0, memory = 0, before = {} }
  for _, name in ipairs({ 'kinds', 'pools', 'places' }) do
    counts[name] = isEmpty and {} or fieldsOf(a.base .. name, '', cjson.decode)
    counts.before[name] = {}
  end
  return counts
end

local function addCount(counts, tableName, name, n, pages)
  local entry = counts[tableName][name] or { 0, 0 }
  counts.before[tableName][name] = counts.before[tableName][name] or entry[1]
  counts[tableName][name] = { entry[1] + n, entry[2] + pages }
end

-- Adds (sign 1) what a runtime offers, or takes it away (-1).
local function addOffer(counts, offer, sign)
  local kind, slots, pace, starts, memory, pools = unpack(offer)
  counts.slots, counts.pace = counts.slots + sign * slots, counts.pace + sign * pace
  counts.starts, counts.memory = counts.starts + sign * starts, counts.memory + sign * memory
  addCount(counts, 'kinds', kind, sign, 0)
  for _, one in ipairs(pools) do
    local pool, place, pages = unpack(one)
    local sharers, known = unpack(counts.pools[pool] or { 0, 0 })
    -- True when no other runtime shares the pool. `sharers` includes this runtime only when it goes.
    local isOnlySharer = sharers == (sign == 1 and 0 or 1)
    -- When runtimes disagree about the pages of a process, the last description counts.
    local change = sign == 1 and pages - known or isOnlySharer and -known or 0
    addCount(counts, 'pools', pool, sign, change)
    if isOnlySharer or change ~= 0 then
      addCount(counts, 'places', place, isOnlySharer and sign or 0, change)
    end
  end
end

local function writeCounts(a, counts)
  for _, name in ipairs({ 'kinds', 'pools', 'places' }) do
    local set, dropped = {}, {}
    for field in pairs(counts.before[name]) do
      if counts[name][field][1] > 0 then
        set[#set + 1] = field
        set[#set + 1] = cjson.encode(counts[name][field])
      else
        dropped[#dropped + 1] = field
      end
    end
    write(a.base .. name, set, dropped)
  end
end

-- Lists a runtime among those that report the free memory of its GPU hosts, or takes it off the lists.
local function noteReporter(a, id, offer, isListed)
  for _, pool in ipairs(offer[6]) do
    local _, place, _, process = unpack(pool)
    if isListed then
      redis.call('HSET', a.base .. 'reporters:' .. place, id, process)
    else
      redis.call('HDEL', a.base .. 'reporters:' .. place, id)
    end
  end
end

-- Brings the first model, and the lists of GPU hosts of `models` (names as keys), up to date after places of these models came or went.
local function noteModels(a, models)
  local hosts = {}
  a.first = nil
  for _, place in ipairs(redis.call('HKEYS', a.base .. 'places')) do
    local model, host = string.match(place, '^([^@]+)@?(.*)$')
    a.first = (not a.first or model < a.first) and model or a.first
    if models[model] and host ~= '' then
      hosts[model] = hosts[model] or {}
      table.insert(hosts[model], host)
    end
  end
  local version
  for model in pairs(models) do
    local key, isNew = a.base .. 'hosts:' .. model, {}
    for _, host in ipairs(hosts[model] or {}) do
      isNew[host] = true
    end
    for _, host in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      if isNew[host] then
        isNew[host] = nil
      else
        redis.call('ZREM', key, host)
      end
    end
    for host in pairs(isNew) do
      version = version or redis.call('HINCRBY', a.base .. 'state', 'hosts', 1)
      redis.call('ZADD', key, version, host)
    end
  end
  a.hostsVersion = version or a.hostsVersion
  if a.first then
    redis.call('HSET', a.base .. 'capacity', 'first', a.first)
  else
    redis.call('HDEL', a.base .. 'capacity', 'first')
  end
end

-- Sums the slots and expected pages by model of the admitted invocations that a runtime holds.
local function heldBy(a, runtimeId)
  local held = { slots = 0, pages = {} }
  for _, id in ipairs(redis.call('SMEMBERS', heldKey(a, runtimeId))) do
    local entry = redis.call('HGET', a.base .. 'ledger', id)
    if entry then
      held.slots = held.slots + 1
      for model, count in pairs(cjson.decode(entry).pages) do
        held.pages[model] = (held.pages[model] or 0) + count
      end
    end
  end
  return held
end

-- Adds to the capacity what a runtime that takes no more jobs still holds, so that its invocations take no room on other runtimes. Returns the
-- value of its field HELD_BY_LEAVING. The pages of a GPU host that other runtimes share are in the sums already; `counted` names the models whose
-- pages are added here.
local function addLeaving(a, counts, totals, id, description)
  local held = heldBy(a, id)
  held.counted = {}
  counts.slots, counts.pace = counts.slots + held.slots, counts.pace + held.slots
  if totals[MEMORY] then
    held.counted[MEMORY] = true
    totals[MEMORY] = totals[MEMORY] + (held.pages[MEMORY] or 0)
  end
  for _, one in ipairs(offerOf(description)[6]) do
    local pool, place = unpack(one)
    if totals[place] and not counts.pools[pool] then
      held.counted[place] = true
      totals[place] = totals[place] + (held.pages[place] or 0)
    end
  end
  return held
end

-- Subtracts an invocation that leaves its runtime from the capacity, if that runtime takes no more jobs.
local function leaveLeaving(a, id, pages)
  local runtimeId = a.leaving ~= 0 and redis.call('HGET', a.queue .. id, 'pb')
  local text = runtimeId and redis.call('HGET', a.base .. 'capacity', HELD_BY_LEAVING .. runtimeId)
  if not text then
    return
  end
  local capacity, held = a.base .. 'capacity', cjson.decode(text)
  held.slots = held.slots - 1
  a.slots = redis.call('HINCRBY', capacity, 'slots', -1)
  a.pace = redis.call('HINCRBY', capacity, 'pace', -1)
  for model, count in pairs(pages) do
    local left = (held.pages[model] or 0) - count
    held.pages[model] = left ~= 0 and left or nil
    if held.counted[model] then
      a.pages[model] = redis.call('HINCRBY', capacity, 'pages:' .. model, -count)
    end
  end
  redis.call('HSET', capacity, HELD_BY_LEAVING .. runtimeId, cjson.encode(held))
  reckonReserve(a)
end

-- Settles all tenants again when the set of models or `smallSlots` has changed.
local function settleCapacity(a, sameModels)
  reckonReserve(a)
  if sameModels and a.smallSlots == a.settledSmallSlots then
    settleSome(a)
  else
    settleAll(a)
  end
end

-- Parses a runtime's description; nil for a text that is broken or missing.
local function describedIn(text)
  local ok, description = pcall(cjson.decode, text or '')
  return ok and type(description) == 'table' and description or nil
end

-- Recounts the offers of all living runtimes, and what the leaving ones (those that take no more jobs and still hold some) hold.
function recount(a)
  local counts, offers, leaving = openCounts(a, true), {}, {}
  local runtimes = redis.call('HGETALL', a.prefix .. ':runtimes')
  for i = 1, #runtimes, 2 do
    local id = runtimes[i]
    local description = redis.call('EXISTS', a.prefix .. ':runtime:' .. id .. ':alive') == 1 and describedIn(runtimes[i + 1])
    if description and description.accepting == true then
      local offer = offerOf(description)
      offers[id] = cjson.encode(offer)
      addOffer(counts, offer, 1)
    elseif description and redis.call('SCARD', heldKey(a, id)) > 0 then
      leaving[id] = description
    end
  end

  local overcommit, reserve, hasMemory, placement = 1, 0, false, nil
  for kind in pairs(counts.kinds) do
    local factor, kept, memory, by = string.match(kind, '^(%S+) (%S+) (%d) (.*)$')
    overcommit, reserve = math.max(overcommit, tonumber(factor)), math.max(reserve, tonumber(kept))
    hasMemory = hasMemory or memory == '1'
    -- If runtimes differ, the default, `tenant`, counts.
    placement = placement ~= 'tenant' and by ~= '' and by or placement
  end
  local had, models, sameModels = {}, {}, true
  for _, field in ipairs(redis.call('HKEYS', a.base .. 'capacity')) do
    had[string.match(field, '^pages:(.*)$') or ''] = true
  end
  local totals = {}
  for place, entry in pairs(counts.places) do
    totals[place] = math.floor(entry[2] * overcommit)
    sameModels = sameModels and had[place] ~= nil
    models[string.match(place, '^[^@]+')] = true
  end
  for _, place in ipairs(redis.call('HKEYS', a.base .. 'places')) do
    models[string.match(place, '^[^@]+')] = true
  end
  -- No overcommit for runtime memory: a GPU host can swap pages or take them from an inferlet, but runtime memory cannot be taken back.
  totals[MEMORY] = hasMemory and counts.memory or nil
  had[''] = nil
  for place in pairs(had) do
    sameModels = sameModels and totals[place] ~= nil
  end

  local capacity, leavingCount = {}, 0
  local function set(field, value)
    capacity[#capacity + 1] = field
    capacity[#capacity + 1] = value
  end
  for id, description in pairs(leaving) do
    set(HELD_BY_LEAVING .. id, cjson.encode(addLeaving(a, counts, totals, id, description)))
    leavingCount = leavingCount + 1
  end
  for field, value in pairs({ slots = counts.slots, pace = counts.pace, starts = counts.starts, reserve = exact(reserve),
    overcommit = exact(overcommit), leaving = leavingCount, placement = placement }) do
    set(field, value)
  end
  for place, total in pairs(totals) do
    set('pages:' .. place, total)
  end
  redis.call('DEL', a.base .. 'capacity')
  write(a.base .. 'capacity', capacity, {})
  redis.call('DEL', a.base .. 'kinds', a.base .. 'pools', a.base .. 'places')
  writeCounts(a, counts)

  local before = redis.call('HGETALL', a.base .. 'offers')
  for i = 1, #before, 2 do
    local id, text = before[i], before[i + 1]
    if offers[id] == text then
      offers[id] = nil
    else
      noteReporter(a, id, cjson.decode(text), false)
      redis.call('HDEL', a.base .. 'offers', id)
    end
  end
  for id, text in pairs(offers) do
    noteReporter(a, id, cjson.decode(text), true)
    redis.call('HSET', a.base .. 'offers', id, text)
  end

  a.slots, a.pace, a.starts, a.reserve, a.overcommit = counts.slots, counts.pace, counts.starts, reserve, overcommit
  a.pages, a.placement, a.leaving = totals, placement, leavingCount
  noteModels(a, models)
  redis.call('HSET', a.base .. 'state', 'countedAt', a.now)
  settleCapacity(a, sameModels)
end

-- Counts what one runtime offers now; `text` is its description, or nil when it goes. Usually subtracts its last offer from the sums and adds the
-- new one. In these cases it recounts all runtimes instead:
--   - no process has counted the runtimes yet, or Redis has lost the count;
--   - the runtime is leaving (it takes no more jobs and still holds some), or was until now;
--   - the first runtime of a kind comes, or the last one goes;
--   - pools come, go or change while any runtime is leaving.
function countRuntime(a, id, text)
  local description = describedIn(text)
  local offer = description and description.accepting == true and offerOf(description) or nil
  local leaves = description and not offer and redis.call('SCARD', heldKey(a, id)) > 0
  if not a.leaving or leaves or (a.leaving > 0 and redis.call('HEXISTS', a.base .. 'capacity', HELD_BY_LEAVING .. id) == 1) then
    return recount(a)
  end
  local offerText, earlierText = offer and cjson.encode(offer) or false, redis.call('HGET', a.base .. 'offers', id)
  if offerText == earlierText then
    return
  end
  local counts, earlier = openCounts(a), earlierText and cjson.decode(earlierText)
  if earlier then
    addOffer(counts, earlier, -1)
  end
  if offer then
    addOffer(counts, offer, 1)
  end
  local needsRecount, models = false, {}
  for kind, count in pairs(counts.before.kinds) do
    needsRecount = needsRecount or (count > 0) ~= (counts.kinds[kind][1] > 0)
  end
  for place, count in pairs(counts.before.places) do
    needsRecount = needsRecount or a.leaving > 0
    if (count > 0) ~= (counts.places[place][1] > 0) then
      models[string.match(place, '^[^@]+')] = true
    end
  end
  if needsRecount then
    return recount(a)
  end

  a.slots, a.pace, a.starts = a.slots + counts.slots, a.pace + counts.pace, a.starts + counts.starts
  local set, dropped = { 'slots', a.slots, 'pace', a.pace, 'starts', a.starts }, {}
  local function setPages(place, total)
    a.pages[place] = total
    if total then
      set[#set + 1] = 'pages:' .. place
      set[#set + 1] = total
    else
      dropped[#dropped + 1] = 'pages:' .. place
    end
  end
  if a.pages[MEMORY] then
    setPages(MEMORY, a.pages[MEMORY] + counts.memory)
  end
  for place in pairs(counts.before.places) do
    local pools, pages = unpack(counts.places[place])
    setPages(place, pools > 0 and math.floor(pages * a.overcommit) or nil)
  end
  write(a.base .. 'capacity', set, dropped)
  writeCounts(a, counts)
  if earlier then
    noteReporter(a, id, earlier, false)
    redis.call('HDEL', a.base .. 'offers', id)
  end
  if offer then
    noteReporter(a, id, offer, true)
    redis.call('HSET', a.base .. 'offers', id, offerText)
  end
  if next(models) then
    noteModels(a, models)
  end
  settleCapacity(a, not next(models))
end

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
