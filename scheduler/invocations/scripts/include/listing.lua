-- Invocations by submission time, those that have not ended apart from the ended ones, so that no number of ends hides who still runs. Of
-- each tenant, and of each of its functions, two sorted sets: <listing>:open and <listing>:ended, <listing>:of:<function>:open and …:ended.
-- The record says what `listing` is.
local function listsOf(listing, fn)
  return {listing, listing .. ':of:' .. fn}
end

-- Lists one that has not ended, and lets go of ended ones past those bounds: how many of the tenant, of the function, and for how long.
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
