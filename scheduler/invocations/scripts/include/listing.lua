--- @include "../../../store/scripts/gather.lua"

-- Invocations by submission time. Unended and ended invocations have separate lists, so that ended ones never push out running ones. Each
-- tenant, and each of its functions, has two sorted sets: <listing>:open and <listing>:ended, <listing>:of:<function>:open and …:ended.
-- The record holds `listing`. The changes are
-- gathered: call `runGathered` after the last one.
local function listsOf(listing, fn)
  return {listing, listing .. ':of:' .. fn}
end

-- Lists that this script has cut.
local cutLists = {}

-- Lists an unended invocation, and drops ended ones past the bounds: number per tenant, number per function, and age.
local function listOpen(listing, fn, id, submittedAt, keepOfTenant, keepOfFunction, keepMs)
  for i, list in ipairs(listsOf(listing, fn)) do
    gather('ZADD', list .. ':open', submittedAt, id)
    if not cutLists[list] then
      cutLists[list] = true
      redis.call('ZREMRANGEBYSCORE', list .. ':ended', '-inf', submittedAt - keepMs)
      redis.call('ZREMRANGEBYRANK', list .. ':ended', 0, -1 - tonumber(i == 1 and keepOfTenant or keepOfFunction))
    end
  end
end

local function listEnded(listing, fn, id, submittedAt, keepMs)
  for _, list in ipairs(listsOf(listing, fn)) do
    gather('ZREM', list .. ':open', id)
    gather('ZADD', list .. ':ended', submittedAt, id)
    expireLater(list .. ':ended', keepMs)
  end
end
