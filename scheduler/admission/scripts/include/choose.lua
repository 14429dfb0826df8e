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
