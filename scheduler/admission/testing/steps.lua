--[[
  For tests: plays a whole admission history in one call, for comparison with the policy.

  KEYS[1] admission's state (hash)
  ARGV[1] prefix of every key
  ARGV[2] JSON list of steps { kind, now, ... }
    A step with `together` (enter and leave only) belongs to the same change as the next step.
    enter: id, tenant, arrival, pages, latency, short  an invocation is new, or was admitted and comes back
    leave: id, tenant                       the invocation has ended
    begin: id, tenant                       an attempt has begun
    limit: tenant, weight, suspended, concurrency, pages
    resize: slots, pace, starts, reserve, pages
    admit                                   ends a change
    report: free                            reports of GPU hosts on their free memory
    Memory is an entry of `pages`, as in the policy.

  Returns for each step the ids that are on their way to runtimes after it, in fetch order, separated by spaces; '' within a change.
]]
--- @include "../rules.lua"

local prefix = ARGV[1]
local jobs = prefix .. ':bull:invocations:'
local answers = {}

local function change(now, tenant, description)
  local a = openAdmission(prefix, now)
  if description then
    countRuntime(a, 'r', description)
  end
  if tenant then
    settle(a, tenant)
  end
  admit(a)
  closeAdmission(a)
end

-- Changes of the steps so far that `apply` makes together.
local changes = {}

local function apply(now)
  changeAdmission(prefix, now, function(a)
    for _, one in ipairs(changes) do
      one(a)
    end
  end)
  changes = {}
end

local function set(key, field, value)
  -- Forget the quotas that ../quotas/limits.lua has read: the step may set one of them.
  quotasRead = {}
  if value == nil or value == cjson.null then
    redis.call('HDEL', key, field)
  else
    redis.call('HSET', key, field, tostring(value))
  end
end

for i, step in ipairs(cjson.decode(ARGV[2])) do
  if step.kind == 'enter' then
    local record = prefix .. ':invocation:' .. step.id
    local memory = step.pages['#memory'] or 0
    step.pages['#memory'] = nil
    redis.call('HSET', record, 'status', 'queued', 'tenant', step.tenant, 'arrival', step.arrival, 'prefix', prefix, 'declaredPages',
      next(step.pages) and cjson.encode(step.pages) or '{}', 'expectedMemory', memory)
    set(record, 'latency', step.latency and '{}' or nil)
    set(record, 'shortAt', step.short and step.short.since)
    set(record, 'leastPages', step.short and cjson.encode(step.short.pages))
    redis.call('HSET', jobs .. step.id, 'name', 'invoke', 'data', '{}')
    redis.call('LREM', jobs .. 'wait', 1, step.id)
    changes[#changes + 1] = function(a) enterQueue(a, step.tenant, step.id, step.arrival) end
  elseif step.kind == 'leave' then
    redis.call('HSET', prefix .. ':invocation:' .. step.id, 'status', 'succeeded')
    changes[#changes + 1] = function(a) leaveAdmission(a, step.tenant, step.id) end
  elseif step.kind == 'begin' then
    redis.call('HSET', prefix .. ':invocation:' .. step.id, 'status', 'running')
    redis.call('LREM', jobs .. 'wait', 1, step.id)
    beginAdmitted(prefix, { step.id }, step.now)
  elseif step.kind == 'limit' then
    set(prefix .. ':tenant:' .. step.tenant, 'weight', step.weight)
    set(prefix .. ':tenant:' .. step.tenant, 'suspended', step.suspended and 1 or 0)
    set(prefix .. ':account:' .. step.tenant .. ':quotas', 'concurrent-invocations', step.concurrency)
    set(prefix .. ':account:' .. step.tenant .. ':quotas', 'kv-pages', step.pages)
    change(step.now, step.tenant)
  elseif step.kind == 'admit' then
    -- The change is applied below.
  elseif step.kind == 'report' then
    local models = {}
    for name, readings in pairs(step.free) do
      for host, reading in ipairs(readings) do
        models[#models + 1] = { model = name, hostId = 'h' .. host, freePages = reading.pages, cachedPages = 0, idlePages = 0,
          readAt = reading.readAt }
      end
    end
    redis.call('SET', prefix .. ':runtime:r:alive', cjson.encode({ running = 0, models = models }))
    change(step.now)
  else
    local models, memory = {}, step.pages['#memory']
    step.pages['#memory'] = nil
    for name, pages in pairs(step.pages) do
      models[#models + 1] = { name = name, pageCount = pages }
    end
    local description = cjson.encode({ id = 'r', accepting = true, slots = step.slots, pace = step.pace, starts = step.starts,
      reserve = step.reserve, models = models, memoryMb = memory })
    redis.call('HSET', prefix .. ':runtimes', 'r', description)
    redis.call('SET', prefix .. ':runtime:r:alive', '{}', 'NX')
    change(step.now, nil, description)
  end
  if #changes > 0 and not step.together then
    apply(step.now)
  end
  local admitted = step.together and {} or redis.call('LRANGE', jobs .. 'wait', 0, -1)
  local order = {}
  for k = #admitted, 1, -1 do
    order[#order + 1] = admitted[k]
  end
  answers[i] = table.concat(order, ' ')
end
return answers
