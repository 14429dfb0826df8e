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

-- A counted quota that is used up, or nil. A limit of 0 takes precedence, because it never resets. Otherwise the quota with the longest window is
-- returned, because it resets last.
local function usedUp(limits)
  local found
  for _, limit in ipairs(limits) do
    if limit.used >= limit.limit and not (found and found.limit == 0) then
      found = limit
    end
  end
  return found
end

-- The quota of bytes or open invocations that has no room for a new invocation, or nil. An invocation is open from its submission to its end.
-- A function's `concurrent-invocations` bounds the function's open invocations. A tenant's `concurrent-invocations` refuses an invocation only when
-- it is 0: the tenant's open invocations beyond it wait, and count against `waiting-invocations`. Without that limit, `waitingCount` invocations
-- count. `bytes` is what the new invocation takes in Redis, `replaced` the number of open invocations of the function that it replaces and thus ends.
local function noRoom(account, fn, now, waitingCount, bytes, replaced)
  local full = bytesRefusal(account, bytes, now)
  if full then
    return {quota = full[1], fn = '', limit = full[2], used = full[3]}
  end
  local open, openOfFunction = unpack(redis.call('HMGET', account .. ':open', '*', fn))
  open, openOfFunction, waitingCount = tonumber(open or 0) - replaced, tonumber(openOfFunction or 0) - replaced, waitingCount - replaced
  local functionLimit = quotaLimit(account, 'concurrent-invocations', fn, now)
  if functionLimit and openOfFunction >= functionLimit then
    return {quota = 'concurrent-invocations', fn = fn, limit = functionLimit, used = openOfFunction}
  end
  local runningLimit = quotaLimit(account, 'concurrent-invocations', '', now)
  -- The invocation would wait forever.
  if runningLimit == 0 then
    return {quota = 'concurrent-invocations', fn = '', limit = 0, used = open}
  end
  local waitingLimit = quotaLimit(account, 'waiting-invocations', '', now)
  if not waitingLimit then
    return nil
  end
  local used = runningLimit and math.max(0, open - runningLimit) or waitingCount
  if (runningLimit and open >= runningLimit + waitingLimit) or (not runningLimit and waitingCount >= waitingLimit) then
    return {quota = 'waiting-invocations', fn = '', limit = waitingLimit, used = used}
  end
  return nil
end

-- True when the tenant may have one more invocation with latency targets. Their number stays within the tenant's concurrency limit: with
-- more, one of them would always wait at the head of the queue, and the tenant's other invocations would starve.
local function grantsLatency(account, now)
  local latencyLimit = quotaLimit(account, 'latency-invocations', '', now) or 0
  local runningLimit = quotaLimit(account, 'concurrent-invocations', '', now) or latencyLimit
  return redis.call('SCARD', account .. ':latency') < math.min(latencyLimit, runningLimit)
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

-- Refuses a request of the tenant and counts the refusal, or allows the request to be stored. Returns the refusing quota or nil, then the limits
-- with their present use.
local function admitRequest(account, fn, now, waitingCount, bytes, replaced)
  local limits = countedUse(account, fn, now)
  local refusing = usedUp(limits) or noRoom(account, fn, now, waitingCount, bytes, replaced)
  if refusing then
    -- A full Redis refuses this HINCRBY, and the request is refused without being counted. PEXPIRE must then not run: a full Redis would accept it,
    -- and after this first write also each later write of the script.
    if type(redis.pcall('HINCRBY', windowKey(account, 'minute', now), 'r:' .. refusing.quota, 1)) == 'number' then
      redis.call('PEXPIRE', windowKey(account, 'minute', now), KEPT_MS.minute)
    end
    return refusing, limits
  end
  return nil, limits
end

-- Counts a request that is stored.
local function countRequest(account, fn, now, limits)
  addUsage(account, fn, now, {[REQUESTS] = 1, [INVOCATIONS] = 1})
  redis.call('HINCRBY', account .. ':open', '*', 1)
  redis.call('HINCRBY', account .. ':open', fn, 1)
  for _, limit in ipairs(limits) do
    if limit.kind == 'requests' then
      limit.used = limit.used + 1
    end
  end
end
