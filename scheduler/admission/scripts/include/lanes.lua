-- Those on their way to runtimes, by two lanes: BullMQ's list `wait`, and `express` beside it, of the same jobs, which express runtimes fetch from. Each
-- has a marker that wakes who sleeps before it. `admission/lanes.ts` says the same.

-- How many are on their way: in the ordinary lane of tenants that held few slots and of others, and in the express lane. Counted once, until one
-- leaves.
local function onTheWay(a)
  if not a.way then
    local few = redis.call('SCARD', a.base .. 'startingFew')
    a.way = { few = few, others = redis.call('SCARD', a.base .. 'starting') - few, express = redis.call('SCARD', a.base .. 'startingExpress') }
  end
  return a.way
end

-- Remembers by which lane an admitted invocation is on its way.
local function enterLane(a, id, lane, few)
  local kind = lane or (few and 'few') or 'others'
  onTheWay(a)[kind] = onTheWay(a)[kind] + 1
  if lane then
    redis.call('SADD', a.base .. 'startingExpress', id)
    return
  end
  redis.call('SADD', a.base .. 'starting', id)
  if few then
    redis.call('SADD', a.base .. 'startingFew', id)
  end
end

-- Forgets it. Answers whether it was on its way.
function leaveLane(base, id)
  if redis.call('SREM', base .. 'starting', id) == 1 then
    redis.call('SREM', base .. 'startingFew', id)
    return true
  end
  return redis.call('SREM', base .. 'startingExpress', id) == 1
end

local function laneHasRoom(a)
  local way = onTheWay(a)
  -- Those who left it for the other count, too: otherwise they would gather there while nobody fetches.
  return a.usedExpress < a.express and way.express < a.starts and way.express + way.few < 2 * a.starts
end

-- Whether a tenant's head takes the express lane: one of its first few, while there is a slot. It overtakes none of its own tenant's.
local function takesExpress(a, tenant)
  if a.ownSlots == 0 or tenant.running + 1 > math.max(1, math.floor(a.ownSlots * EXPRESS)) or not laneHasRoom(a) then
    return false
  end
  for _, id in ipairs(redis.call('SMEMBERS', a.base .. 'starting')) do
    local text = redis.call('HGET', a.base .. 'ledger', id)
    if text and cjson.decode(text).tenant == tenant.name then
      return false
    end
  end
  return true
end

-- Puts an invocation among those on their way to runtimes, by its place, and behind all of its own tenant. The right end of a list is
-- fetched next; the list is short, since few are on their way.
local function enterWait(a, wait, tenant, id, place)
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

-- Those that have stood in the express lane since `before` or longer go to the head of the other: its runtimes are gone, or slow.
local function leaveExpressLane(a, before)
  if onTheWay(a).express == 0 then
    return
  end
  local stranded = {}
  for _, id in ipairs(redis.call('LRANGE', a.queue .. 'express', 0, -1)) do
    local text = redis.call('HGET', a.base .. 'ledger', id)
    local entry = text and cjson.decode(text)
    if not entry or tonumber(entry.at) <= before then
      stranded[#stranded + 1] = id
      redis.call('LREM', a.queue .. 'express', 1, id)
    end
    if entry and tonumber(entry.at) <= before then
      entry.lane = nil
      redis.call('HSET', a.base .. 'ledger', id, cjson.encode(entry))
      a.usedExpress = a.usedExpress - 1
      leaveLane(a.base, id)
      a.way = nil
      enterLane(a, id, nil, true)
    end
  end
  if #stranded > 0 then
    redis.call('RPUSH', a.queue .. 'wait', unpack(stranded))
    redis.call('ZADD', a.queue .. 'marker', 0, '0')
  end
end
