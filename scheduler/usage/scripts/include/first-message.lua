-- Counts the time from the submission of an invocation to its first message, once: in the bucket whose upper end is 2^(bucket / 4) ms, as
-- `bucketEnd` of first-message.ts computes it. Children are not counted: a child's client is its parent. Needs counters.lua, included before it.

-- The upper end of the last bucket is 2^21 ms, 35 minutes. The bucket also counts longer times, so quantiles show at most 35 minutes.
local LAST_BUCKET = 84

local function countFirstMessage(record, account, now)
  local submittedAt, parent = unpack(redis.call('HMGET', record, 'submittedAt', 'parent'))
  if not account or parent or redis.call('HSETNX', record, 'firstMessageAt', now) == 0 then
    return
  end
  local ms = math.max(1, now - tonumber(submittedAt))
  countInMinute(account, now, 't:' .. math.min(LAST_BUCKET, math.ceil(4 * math.log(ms) / math.log(2))))
end
