-- Decides whether a client may make one more invocation. Needs bytes-limit.lua and counters.lua, included before it.

-- The counted limits, with the use of each.
local function countedUse(account, fn, now)
  local read = {}
  local limits = countedLimits(account, fn, now)
  for _, limit in ipairs(limits) do
    if not read[limit.window] then
      read[limit.window] = {readCounts(account, fn, limit.window, now)}
    end
    limit.quota = limit.kind .. '-per-' .. limit.window
    limit.used = usedOf(limit.kind, read[limit.window][limit.fn == '' and 1 or 2])
  end
  return limits
end

-- The counted quota that is used up, or nil: of several the last one, whose window is the longest. A limit of 0, used up for ever, wins.
local function usedUp(limits)
  local found
  for _, limit in ipairs(limits) do
    if limit.used >= limit.limit and not (found and found.limit == 0) then
      found = limit
    end
  end
  return found
end

-- The quota of open invocations or bytes that has no room, or nil. A function's `concurrent-invocations` covers its running and waiting
-- invocations. The tenant's invocations beyond its concurrency limit (without one: those in the queue) count against `waiting-invocations`; a
-- concurrency limit of 0 refuses. `bytes` is what the invocation takes in Redis, `replaced` the number of open invocations of the function
-- that it replaces.
local function noRoom(account, fn, now, waitingCount, bytes, replaced)
  local full = bytesRefusal(account, bytes, now)
  if full then
    return {quota = full[1], fn = '', limit = full[2], used = full[3]}
  end
  local open, openOne = unpack(redis.call('HMGET', account .. ':open', '*', fn))
  open, openOne, waitingCount = tonumber(open or 0) - replaced, tonumber(openOne or 0) - replaced, waitingCount - replaced
  local one = quotaLimit(account, 'concurrent-invocations', fn, now)
  if one and openOne >= one then
    return {quota = 'concurrent-invocations', fn = fn, limit = one, used = openOne}
  end
  local running = quotaLimit(account, 'concurrent-invocations', '', now)
  -- The invocation would wait forever.
  if running == 0 then
    return {quota = 'concurrent-invocations', fn = '', limit = 0, used = open}
  end
  local waiting = quotaLimit(account, 'waiting-invocations', '', now)
  if not waiting then
    return nil
  end
  local used = running and math.max(0, open - running) or waitingCount
  if (running and open >= running + waiting) or (not running and waitingCount >= waiting) then
    return {quota = 'waiting-invocations', fn = '', limit = waiting, used = used}
  end
  return nil
end

-- True when the tenant may have one more invocation with latency targets. Their number stays within the tenant's concurrency limit: one
-- more would always be first in line for the next free place, and the tenant's other invocations would starve.
local function grantsLatency(account, now)
  local most = quotaLimit(account, 'latency-invocations', '', now) or 0
  local running = quotaLimit(account, 'concurrent-invocations', '', now) or most
  return redis.call('SCARD', account .. ':latency') < math.min(most, running)
end

local function quotaText(number)
  return string.format('%.3f', number)
end

-- Limits in the form of a reply: quota, function or '', limit, used, in a flat list.
local function quotaStates(limits)
  local states = {}
  for _, limit in ipairs(limits) do
    states[#states + 1] = limit.quota
    states[#states + 1] = limit.fn
    states[#states + 1] = quotaText(limit.limit)
    states[#states + 1] = quotaText(limit.used)
  end
  return states
end

-- Refuses a request of the tenant, or allows it to be stored. Returns the refusing quota or nil, then the limits with their present use.
local function admitRequest(account, fn, now, waitingCount, bytes, replaced)
  local limits = countedUse(account, fn, now)
  local refusing = usedUp(limits) or noRoom(account, fn, now, waitingCount, bytes, replaced)
  if refusing then
    -- A full Redis refuses this HINCRBY, and the request is refused all the same. PEXPIRE must then be left out: a full Redis accepts it, and
    -- after this first write also each later write of the script.
    if type(redis.pcall('HINCRBY', windowKey(account, 'minute', now), 'r:' .. refusing.quota, 1)) == 'number' then
      redis.call('PEXPIRE', windowKey(account, 'minute', now), KEPT_MS.minute)
    end
    return refusing, limits
  end
  return nil, limits
end

-- Counts a request that is stored.
local function countRequest(account, fn, now, limits)
  count(account, fn, now, {[REQUESTS] = 1, [INVOCATIONS] = 1})
  redis.call('HINCRBY', account .. ':open', '*', 1)
  redis.call('HINCRBY', account .. ':open', fn, 1)
  for _, limit in ipairs(limits) do
    if limit.kind == 'requests' then
      limit.used = limit.used + 1
    end
  end
end
