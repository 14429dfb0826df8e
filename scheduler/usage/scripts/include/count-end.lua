--- @include "../../../store/scripts/gather.lua"
-- Counts the ends of invocations, with the increase in their usage. An ended invocation of a client is no longer open. Needs counters.lua,
-- included before it.
local ENDS = {succeeded = SUCCEEDED, failed = FAILED, cancelled = CANCELLED}

-- Ends by account and function, gathered until `countEnds` counts them.
local endsCounted = {}

local function countEnd(account, fn, ofClient, status, code, now, added)
  local name = account .. '\0' .. fn
  local ends = endsCounted[name] or {account = account, fn = fn, open = 0, added = {}}
  endsCounted[name] = ends
  ends.open = ends.open + (ofClient and 1 or 0)
  ends.added[ENDS[status]] = (ends.added[ENDS[status]] or 0) + 1
  for place, n in pairs(added) do
    ends.added[place] = (ends.added[place] or 0) + n
  end
  if status == 'failed' then
    countInMinute(account, now, 'f:' .. code)
  end
end

local function closeEnded(account, fn, open)
  redis.call('HINCRBY', account .. ':open', '*', -open)
  if redis.call('HINCRBY', account .. ':open', fn, -open) == 0 then
    redis.call('HDEL', account .. ':open', fn)
  end
end

local function countEnds(now)
  for _, ends in pairs(endsCounted) do
    isolated(addUsage, ends.account, ends.fn, now, ends.added)
    if ends.open > 0 then
      isolated(closeEnded, ends.account, ends.fn, ends.open)
    end
  end
  endsCounted = {}
end
