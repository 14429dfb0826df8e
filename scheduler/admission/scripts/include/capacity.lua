-- Invocations on their way to a runtime: enough to keep it busy, and few enough that nobody waits long behind them.
local STARTS = 8

-- Adds what a runtime offers to the sums: its slots, and the pages of each GPU host process once, however many runtimes share it.
local function addRuntime(sums, description)
  sums.slots = sums.slots + description.slots
  sums.starts = sums.starts + (description.starts or STARTS)
  sums.overcommit = math.max(sums.overcommit, description.overcommit or 1)
  sums.reserve = math.max(sums.reserve, description.reserve or 0)
  for _, model in ipairs(description.models or {}) do
    local pool = (model.hostId or description.id) .. ' ' .. model.name
    if not sums.seen[pool] then
      sums.seen[pool] = true
      sums.pages[model.name] = (sums.pages[model.name] or 0) + model.pageCount
    end
  end
end

-- Works the platform's capacity out from the runtimes that live and accept work. When it has changed, every tenant is put where it belongs.
function refreshCapacity(a)
  local sums = { slots = 0, starts = 0, overcommit = 1, reserve = 0, pages = {}, seen = {} }
  local runtimes = redis.call('HGETALL', a.prefix .. ':runtimes')
  for i = 1, #runtimes, 2 do
    if redis.call('EXISTS', a.prefix .. ':runtime:' .. runtimes[i] .. ':alive') == 1 then
      local description = cjson.decode(runtimes[i + 1])
      if description.accepting == true then
        addRuntime(sums, description)
      end
    end
  end
  local capacity = { 'slots', sums.slots, 'starts', sums.starts, 'reserve', exact(sums.reserve) }
  local same = a.slots == sums.slots and a.starts == sums.starts and exact(a.reserve) == exact(sums.reserve)
  for model, count in pairs(sums.pages) do
    local total = math.floor(count * sums.overcommit)
    same = same and a.pages[model] == total
    capacity[#capacity + 1] = 'pages:' .. model
    capacity[#capacity + 1] = total
  end
  for model in pairs(a.pages) do
    same = same and sums.pages[model] ~= nil
  end
  if same then
    return a
  end
  redis.call('DEL', a.base .. 'capacity')
  redis.call('HSET', a.base .. 'capacity', unpack(capacity))
  closeAdmission(a)
  local fresh = openAdmission(a.prefix, a.now)
  for _, name in ipairs(redis.call('SMEMBERS', a.base .. 'tenants')) do
    settle(fresh, name)
  end
  return fresh
end
