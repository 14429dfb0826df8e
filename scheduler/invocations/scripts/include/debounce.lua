-- Debounced invocations wait outside their tenants' queues until their delay has passed. `<prefix>:debounced` (sorted set) has their ids by
-- the end of the delay. The field `debounceKey` of a record names the tenant's hash of waiting invocations. In that hash, the field
-- `debounceField` (function and debounce key) holds the id and the time of the first submission.

-- Maximum debounce keys of a tenant for which an invocation waits at once.
local MAX_DEBOUNCE_KEYS = 1000

-- Returns the id of the invocation that waits with the same function and key, and the time of the first submission since the delay began; nil and
-- `now` when none waits. An entry whose invocation Redis has lost does not count.
local function debouncedBefore(given, now)
  local id, first = string.match(redis.call('HGET', given.debounceKey, given.debounceField) or '', '^(%S+) (%d+)$')
  if id and redis.call('HGET', given.prefix .. ':invocation:' .. id, 'status') == 'queued' then
    return id, tonumber(first)
  end
  return nil, now
end

-- Lets an invocation wait; returns the time at which its delay ends.
local function debounce(given, id, now, first)
  local till = math.min(now + tonumber(given.debounceDelayMs), first + tonumber(given.debounceMaxMs))
  redis.call('HSET', given.debounceKey, given.debounceField, id .. ' ' .. string.format('%.0f', first))
  redis.call('ZADD', given.prefix .. ':debounced', till, id)
  return till
end
