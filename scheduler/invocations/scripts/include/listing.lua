-- Invocations by submission time. Unended and ended invocations have separate lists, so that ended ones never push out running ones. Each
-- tenant, and each of its functions, has two sorted sets: <listing>:open and <listing>:ended, <listing>:of:<function>:open and …:ended.
-- The record holds `listing`.
local function listsOf(listing, fn)
  return {listing, listing .. ':of:' .. fn}
end

-- Lists an unended invocation, and drops ended ones past the bounds: number per tenant, number per function, and age.
local function listOpen(listing, fn, id, submittedAt, keepOfTenant, keepOfFunction, keepMs)
  for i, list in ipairs(listsOf(listing, fn)) do
    local ended = list .. ':ended'
    redis.call('ZADD', list .. ':open', submittedAt, id)
    redis.call('ZREMRANGEBYSCORE', ended, '-inf', submittedAt - keepMs)
    redis.call('ZREMRANGEBYRANK', ended, 0, -1 - tonumber(i == 1 and keepOfTenant or keepOfFunction))
  end
end

local function listEnded(listing, fn, id, submittedAt, keepMs)
  for _, list in ipairs(listsOf(listing, fn)) do
    redis.call('ZREM', list .. ':open', id)
    redis.call('ZADD', list .. ':ended', submittedAt, id)
    redis.call('PEXPIRE', list .. ':ended', keepMs)
  end
end
