--- @include "../../../store/scripts/gather.lua"

-- Invocations by submission time. Unended and ended invocations have separate lists, so that ended ones never push out running ones. Each
-- tenant, and each of its functions, has two sorted sets: <listing>:open and <listing>:ended, <listing>:of:<function>:open and …:ended.
-- <listing> is a prefix of keys; the invocation's record keeps it as the field `listing`, for the script that ends the invocation.
-- The changes are gathered: call `runGathered` after the last one.
local function listsOf(listing, fn)
  return {listing, listing .. ':of:' .. fn}
end

local listOpen

do
-- Lists that this script has cut already: one cut of each list is enough.
local cutLists = {}
-- Maximum number of a list's old invocations at which one cut looks.
local OLD_AT_ONCE = 16

-- Drops ended invocations that were submitted before `oldest` and whose records are gone. An old invocation may still have its record: the
-- record's retention begins when the invocation ends, and an invocation may wait for a person for a month. If the first invocations of the
-- list all have their records, a cut that always began there would drop nothing. So each cut begins at another place: the time `oldest`,
-- in milliseconds, serves as a random number.
local function dropOld(listing, ended, oldest)
  -- Keys begin with the platform's prefix: <prefix>:listing:<tenant>, <prefix>:invocation:<id>.
  local records = string.match(listing, '^(.*):listing:[^:]*$') .. ':invocation:'
  local others = redis.call('ZCOUNT', ended, '-inf', oldest) - OLD_AT_ONCE
  local from = others > 0 and oldest % (others + 1) or 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ended, '-inf', oldest, 'LIMIT', from, OLD_AT_ONCE)) do
    if redis.call('EXISTS', records .. id) == 0 then
      redis.call('ZREM', ended, id)
    end
  end
end

-- Lists an unended invocation, and drops ended ones past the bounds: number per tenant and per function, and the age `keepMs`.
function listOpen(listing, fn, id, submittedAt, keepOfTenant, keepOfFunction, keepMs)
  for i, list in ipairs(listsOf(listing, fn)) do
    gather('ZADD', list .. ':open', submittedAt, id)
    if not cutLists[list] then
      cutLists[list] = true
      dropOld(listing, list .. ':ended', submittedAt - keepMs)
      redis.call('ZREMRANGEBYRANK', list .. ':ended', 0, -1 - tonumber(i == 1 and keepOfTenant or keepOfFunction))
    end
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
