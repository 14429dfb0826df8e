-- Invocations that are admitted and have not begun. Runtimes fetch them from BullMQ's list `wait`, and may begin them later.
-- `admission/on-the-way.ts` has the same logic.

-- Counts the invocations on their way: those that may use the reserve, and the others. `a` caches the counts until an invocation leaves.
local function onTheWay(a)
  if not a.onTheWay then
    local reserveUsers = redis.call('SCARD', a.base .. UNBEGUN_RESERVE_USERS)
    a.onTheWay = { reserveUsers = reserveUsers, others = redis.call('SCARD', a.base .. UNBEGUN) - reserveUsers }
  end
  return a.onTheWay
end

local function enterWay(a, id, isReserveUser)
  local kind = isReserveUser and 'reserveUsers' or 'others'
  onTheWay(a)[kind] = onTheWay(a)[kind] + 1
  redis.call('SADD', a.base .. UNBEGUN, id)
  if isReserveUser then
    redis.call('SADD', a.base .. UNBEGUN_RESERVE_USERS, id)
  end
end

-- Returns true when the invocation was on its way.
function leaveWay(base, id)
  redis.call('SREM', base .. UNBEGUN_RESERVE_USERS, id)
  return redis.call('SREM', base .. UNBEGUN, id) == 1
end

-- Inserts an invocation that may use the reserve into BullMQ's list `wait` by its place. An invocation without latency targets also goes behind all
-- others of its tenant. Runtimes fetch from the right end, so the scan begins with the invocation that they fetch last. The scan is cheap, since
-- the list is short.
local function enterWait(a, tenant, id, place)
  local wait = a.queue .. 'wait'
  for _, other in ipairs(redis.call('LRANGE', wait, 0, -1)) do
    local text = redis.call('HGET', a.base .. 'ledger', other)
    local entry = text and cjson.decode(text)
    if entry and ((entry.tenant == tenant.name and not tenant.latency) or tonumber(entry.place) < place) then
      redis.call('LINSERT', wait, 'BEFORE', other, id)
      return
    end
  end
  redis.call('RPUSH', wait, id)
end
