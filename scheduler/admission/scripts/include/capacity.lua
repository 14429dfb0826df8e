-- Invocations on their way to a runtime: enough to keep it busy, and few enough that nobody waits long behind them.
local STARTS = 8

-- What a model's pages are counted by: its name; of several GPU hosts each its own, since an inferlet is served by one.
local function placeOf(model)
  return model.host and model.name .. '@' .. model.host or model.name
end

local function poolOf(description, model)
  return (model.hostId or description.id) .. ' ' .. model.name
end

-- Adds what a runtime offers to the sums: its slots, and the pages of each GPU host process once, however many runtimes share it.
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

-- Keeps the youngest of what runtimes say of each GPU host's memory: pages that it could give without ending anybody.
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

-- What a runtime holds of all that is admitted: slots, and expected pages by model.
local function heldBy(a, runtimeId)
  local held = { slots = 0, pages = {} }
  local ledger = redis.call('HGETALL', a.base .. 'ledger')
  for i = 1, #ledger, 2 do
    if redis.call('HGET', a.queue .. ledger[i], 'pb') == runtimeId then
      held.slots = held.slots + 1
      for model, count in pairs(cjson.decode(ledger[i + 1]).pages) do
        held.pages[model] = (held.pages[model] or 0) + count
      end
    end
  end
  return held
end

-- A runtime that takes no more offers what it still holds, so that the others' room is not taken by that: as much is there as is admitted. The
-- pages of a GPU host that others use as well are there anyway; `counted` names the models of which they are not.
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

-- Something has left a runtime that takes no more: what was there for it is not there any more.
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

-- Works the platform's capacity out from the runtimes that live. When what tenants are settled by has changed, they are settled anew.
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
  -- Memory that is not there cannot be promised: pages can be swapped, or taken from somebody, and this cannot.
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
