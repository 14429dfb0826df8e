-- Invocations on their way to a runtime: enough to keep it busy, and few enough that later ones do not wait long behind them.
local STARTS = 8

-- Returns the key that counts a model's pages: its name, or one key per GPU host when several have it, since one host serves an inferlet.
local function placeOf(model)
  return model.host and model.name .. '@' .. model.host or model.name
end

local function poolOf(description, model)
  return (model.hostId or description.id) .. ' ' .. model.name
end

-- Adds a runtime's capacity to the sums: its slots, and the pages of each GPU host process once, however many runtimes share that process.
local function addRuntime(sums, description)
  sums.slots = sums.slots + description.slots
  sums.pace = sums.pace + (description.pace or description.slots)
  sums.starts = sums.starts + (description.starts or STARTS)
  sums.overcommit = math.max(sums.overcommit, description.overcommit or 1)
  sums.reserve = math.max(sums.reserve, description.reserve or 0)
  if description.memoryMb then
    sums.memoryMb = (sums.memoryMb or 0) + description.memoryMb
  end
  for _, model in ipairs(description.models or {}) do
    local pool = poolOf(description, model)
    if not sums.seen[pool] then
      sums.seen[pool] = true
      local place = placeOf(model)
      sums.pages[place] = (sums.pages[place] or 0) + model.pageCount
      if model.host then
        sums.hosts[model.name] = sums.hosts[model.name] or {}
        table.insert(sums.hosts[model.name], model.host)
        sums.spread = description.spread
      end
    end
  end
end

-- Keeps the newest reading of each GPU host's memory: pages that the host could give without ending an inferlet.
local function addReadings(readings, description, load)
  local places = {}
  for _, model in ipairs(description.models or {}) do
    places[poolOf(description, model)] = placeOf(model)
  end
  for _, model in ipairs(load.models or {}) do
    local name = places[model.hostId .. ' ' .. model.model] or model.model
    readings[name] = readings[name] or {}
    local known = readings[name][model.hostId]
    if not known or known[2] < model.readAt then
      readings[name][model.hostId] = { model.freePages + model.cachedPages + model.idlePages, model.readAt }
    end
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

-- Adds what a runtime that takes no more jobs still holds as capacity, so that its admitted invocations take no room on other runtimes. The
-- pages of a GPU host that other runtimes share are in the sums already; `counted` names the models whose pages are added here.
local function addApart(a, sums, totals, description)
  local held = a.apart[description.id] or heldBy(a, description.id)
  held.counted = {}
  sums.slots = sums.slots + held.slots
  sums.pace = sums.pace + held.slots
  if totals[MEMORY] then
    held.counted[MEMORY] = true
    totals[MEMORY] = totals[MEMORY] + (held.pages[MEMORY] or 0)
  end
  for _, model in ipairs(description.models or {}) do
    local place = placeOf(model)
    if totals[place] and not sums.seen[poolOf(description, model)] then
      held.counted[place] = true
      totals[place] = totals[place] + (held.pages[place] or 0)
    end
  end
  return held
end

-- Removes the capacity of an invocation that left a runtime that takes no more jobs.
local function leaveApart(a, id, pages)
  local runtimeId = next(a.apart) and redis.call('HGET', a.queue .. id, 'pb')
  local held = runtimeId and a.apart[runtimeId]
  if not held then
    return
  end
  local capacity = a.base .. 'capacity'
  held.slots = held.slots - 1
  a.slots = redis.call('HINCRBY', capacity, 'slots', -1)
  a.pace = redis.call('HINCRBY', capacity, 'pace', -1)
  for model, count in pairs(pages) do
    held.pages[model] = (held.pages[model] or 0) - count
    if held.counted[model] then
      a.pages[model] = redis.call('HINCRBY', capacity, 'pages:' .. model, -count)
    end
  end
  redis.call('HSET', capacity, 'apart:' .. runtimeId, cjson.encode(held))
  reckonReserve(a)
end

-- Computes the platform's capacity from the living runtimes. Settles all tenants again when the set of models or `ownSlots` has changed.
function refreshCapacity(a)
  local sums = { slots = 0, pace = 0, starts = 0, overcommit = 1, reserve = 0, pages = {}, hosts = {}, seen = {} }
  local leaving, readings = {}, {}
  local runtimes = redis.call('HGETALL', a.prefix .. ':runtimes')
  for i = 1, #runtimes, 2 do
    local load = redis.call('GET', a.prefix .. ':runtime:' .. runtimes[i] .. ':alive')
    if load then
      local description = cjson.decode(runtimes[i + 1])
      if description.accepting == true then
        addRuntime(sums, description)
        addReadings(readings, description, cjson.decode(load))
      else
        leaving[#leaving + 1] = description
      end
    end
  end
  local totals, sameModels = {}, true
  for model, count in pairs(sums.pages) do
    totals[model] = math.floor(count * sums.overcommit)
    sameModels = sameModels and a.pages[model] ~= nil
  end
  -- No overcommit for runtime memory: a GPU host can swap pages or take them from an inferlet, but runtime memory cannot be taken back.
  totals[MEMORY] = sums.memoryMb
  for model in pairs(a.pages) do
    sameModels = sameModels and totals[model] ~= nil
  end
  local capacity = { 'starts', sums.starts, 'reserve', exact(sums.reserve) }
  local apart = {}
  for _, description in ipairs(leaving) do
    apart[description.id] = addApart(a, sums, totals, description)
    capacity[#capacity + 1] = 'apart:' .. description.id
    capacity[#capacity + 1] = cjson.encode(apart[description.id])
  end
  capacity[#capacity + 1] = 'slots'
  capacity[#capacity + 1] = sums.slots
  capacity[#capacity + 1] = 'pace'
  capacity[#capacity + 1] = sums.pace
  for model, total in pairs(totals) do
    capacity[#capacity + 1] = 'pages:' .. model
    capacity[#capacity + 1] = total
  end
  a.hosts, a.spread = {}, sums.spread
  for model, hosts in pairs(sums.hosts) do
    a.hosts[model] = cjson.encode(hosts)
    capacity[#capacity + 1] = 'hosts:' .. model
    capacity[#capacity + 1] = a.hosts[model]
  end
  if sums.spread then
    capacity[#capacity + 1] = 'spread'
    capacity[#capacity + 1] = sums.spread
  end
  a.free = {}
  for model, byHost in pairs(readings) do
    local list = {}
    for _, reading in pairs(byHost) do
      list[#list + 1] = reading
    end
    a.free[model] = cjson.encode(list)
    capacity[#capacity + 1] = 'free:' .. model
    capacity[#capacity + 1] = a.free[model]
  end
  redis.call('DEL', a.base .. 'capacity')
  redis.call('HSET', a.base .. 'capacity', unpack(capacity))
  a.slots, a.pace, a.starts, a.reserve, a.pages, a.apart = sums.slots, sums.pace, sums.starts, sums.reserve, totals, apart
  reckonReserve(a)
  if sameModels and a.ownSlots == a.settledSlots then
    settleSome(a)
  else
    settleAll(a)
  end
  return a
end
