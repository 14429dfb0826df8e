-- Invocations that are admitted and not begun: BullMQ's list `wait`. `admission/on-the-way.ts` says the same.

-- How many are on their way, of tenants that held few slots and of others. Counted once, until one leaves.
local function onTheWay(a)
  if not a.way then
    local few = redis.call('SCARD', a.base .. 'startingFew')
    a.way = { few = few, others = redis.call('SCARD', a.base .. 'starting') - few }
  end
  return a.way
end

local function enterWay(a, id, few)
  local kind = few and 'few' or 'others'
  onTheWay(a)[kind] = onTheWay(a)[kind] + 1
  redis.call('SADD', a.base .. 'starting', id)
  if few then
    redis.call('SADD', a.base .. 'startingFew', id)
  end
end

-- Answers whether it was on its way.
function leaveWay(base, id)
  redis.call('SREM', base .. 'startingFew', id)
  return redis.call('SREM', base .. 'starting', id) == 1
end

-- Puts an invocation among those on their way to runtimes, by its place, and behind all of its own tenant. The right end of the list is
-- fetched next; the list is short, since few are on their way.
local function enterWait(a, tenant, id, place)
  local wait = a.queue .. 'wait'
  for _, other in ipairs(redis.call('LRANGE', wait, 0, -1)) do
    local text = redis.call('HGET', a.base .. 'ledger', other)
    local entry = text and cjson.decode(text)
    if entry and (entry.tenant == tenant.name or tonumber(entry.place) < place) then
      redis.call('LINSERT', wait, 'BEFORE', other, id)
      return
    end
  end
  redis.call('RPUSH', wait, id)
end
