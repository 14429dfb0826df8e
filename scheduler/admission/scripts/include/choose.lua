-- True when the tenant holds little of every model that its head needs, the head's need included.
local function holdsFewPages(a, tenant)
  for model, needed in pairs(tenant.need) do
    local own = ownPages(a, model)
    if own and (tenant.held[model] or 0) + needed > own then
      return false
    end
  end
  return true
end

-- Maximum runtimes whose loads a script reads for one place: runtimes that share a GPU host report the same.
local REPORTERS = 16

-- Time for which Redis keeps the readings of a load, ms; a runtime stores a new load about once a second.
local READINGS_MS = 60000

-- Returns the free memory in a runtime's load: a list of {process of the GPU host, model, pages, readAt}. A load describes every GPU host that the
-- runtime reaches, and Redis takes about a millisecond to decode a load of 60 hosts. So the first script that needs a load stores its readings.
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
  for i, own in ipairs(cjson.decode(load).models or {}) do
    list[i] = { own.hostId, own.model, own.freePages + own.cachedPages + own.idlePages, own.readAt }
  end
  -- A full Redis refuses the write; then the next script decodes the load again.
  redis.pcall('SET', key, cmsgpack.pack({ load = load, list = list }), 'PX', READINGS_MS)
  return list
end

-- The pages that the GPU hosts of a place last reported they could give without ending an inferlet, as a list of {pages, readAt}; nil when
-- none has reported.
local function readingsOf(a, place)
  local key, newest = a.base .. 'reporters:' .. place, {}
  local model, isNamed = string.match(place, '^[^@]+'), string.find(place, '@', 1, true)
  local reporters = redis.call('HLEN', key) <= REPORTERS and redis.call('HGETALL', key)
    or redis.call('HRANDFIELD', key, REPORTERS, 'WITHVALUES')
  a.loads = a.loads or readOnce(function(runtimeId) return readingsIn(a, runtimeId) end)
  for i = 1, #reporters, 2 do
    for _, own in ipairs(a.loads[reporters[i]]) do
      local process, itsModel, pages, readAt = unpack(own)
      local known = newest[process]
      if itsModel == model and (not isNamed or process == reporters[i + 1]) and (not known or known[2] < readAt) then
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

-- True when a GPU host's report since a head was requeued for lack of memory shows enough memory, minus the claims of invocations that
-- started this way and may not hold their pages yet. Also true when no invocation is admitted, or no GPU host reports.
local function findsMemory(a, short)
  if a.usedSlots == 0 then
    return true
  end
  local claims
  a.readings = a.readings or readOnce(function(place) return readingsOf(a, place) end)
  for model, needed in pairs(short.pages) do
    local readings = a.readings[model]
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

-- True when a head fits into the room left. Only tenants that hold little, and heads with latency targets or kept room, may use the reserve.
-- A head that needs more than a pool holds starts when no other invocation uses that pool.
local function fits(a, tenant, left, kept)
  local slots = left.slots
  if not kept and not mayUseReserve(a, tenant) then
    slots = left.ordinary
  end
  if slots < 1 or (tenant.short and not findsMemory(a, tenant.short)) then
    return false
  end
  for model, needed in pairs(tenant.need) do
    local room = left.pages[model]
    if room and room ~= a.pages[model] then
      if not kept and not tenant.latency and (tenant.held[model] or 0) + needed > ownPages(a, model) then
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
  local few, others = onTheWay(a).few, onTheWay(a).others
  if left.slots < 1 or (few >= a.starts and others >= a.starts) then
    return nil
  end
  local function waits(tenant)
    return (mayUseReserve(a, tenant) and few or others) >= a.starts
  end
  local seen, passed = {}, {}
  local function look(names, kept)
    for _, name in ipairs(names) do
      if not seen[name] then
        seen[name] = true
        local tenant = openTenant(a, name)
        local isWaiting = waits(tenant)
        if not isWaiting and fits(a, tenant, left, kept) then
          return tenant
        end
        if isWaiting then
          -- The tenant waits for a place on the way: no room is kept for it, and it is not overtaken.
        elseif kept then
          left.slots = left.slots - 1
          left.ordinary = left.ordinary - 1
          for model, needed in pairs(tenant.need) do
            left.pages[model] = left.pages[model] and left.pages[model] - needed
          end
        else
          passed[#passed + 1] = tenant
        end
      end
    end
  end
  local chosen = look(redis.call('ZRANGE', a.base .. 'kept', 0, LOOK - 1), true)
  if not chosen and left.ordinary >= 1 then
    chosen = look(redis.call('ZRANGE', a.base .. 'turns', 0, LOOK - 1), false)
  end
  if not chosen and left.slots >= 1 and a.reserveSlots > 0 then
    chosen = look(redis.call('ZRANGE', a.base .. 'modest', 0, LOOK - 1), false)
  end
  return chosen, passed
end

-- True when a tenant already holds an equal part, among `tenants`, of a pool that its head needs.
local function holdsItsPart(a, tenant, tenants)
  for model in pairs(tenant.need) do
    local held, total = tenant.held[model] or 0, a.pages[model]
    if total and held > 0 and held * tenants >= total then
      return true
    end
  end
  return false
end

-- Counts an overtaking for every head passed over. An invocation that starts from the reserve does not overtake a head that stays out of
-- the reserve only because of its own tenant's holdings.
local function countOvertaken(a, chosen, passed)
  local fewPages = holdsFewPages(a, chosen)
  local waiting = #passed > 0 and redis.call('ZCARD', a.base .. 'turns')
  for _, tenant in ipairs(passed) do
    local small = true
    for model, needed in pairs(tenant.need) do
      small = small and needed <= (ownPages(a, model) or needed)
    end
    if not (fewPages and small) then
      tenant.overtaken, tenant.headChanged = tenant.overtaken + 1, true
      if tenant.overtaken >= MAX_OVERTAKEN and not holdsItsPart(a, tenant, waiting) then
        redis.call('ZADD', a.base .. 'kept', turnOf(a, tenant), tenant.name)
      end
    end
  end
end
