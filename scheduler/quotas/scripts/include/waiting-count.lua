-- The number of a tenant's invocations that count against `waiting-invocations`: those in its queue (sorted set), in a debounce delay (hash),
-- and with a question to a person (set).
local function countWaiting(queue, debounces, questions)
  return redis.call('ZCARD', queue) + redis.call('HLEN', debounces) + redis.call('SCARD', questions)
end
