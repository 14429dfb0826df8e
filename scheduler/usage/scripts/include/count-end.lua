-- Counts the end of an invocation, with the increase in its usage. An ended invocation of a client is no longer open.
local ENDS = {succeeded = SUCCEEDED, failed = FAILED, cancelled = CANCELLED}

local function countEnd(account, fn, ofClient, status, code, now, added)
  added[ENDS[status]] = 1
  count(account, fn, now, added)
  if status == 'failed' then
    countInMinute(account, now, 'f:' .. code)
  end
  if ofClient then
    redis.call('HINCRBY', account .. ':open', '*', -1)
    if redis.call('HINCRBY', account .. ':open', fn, -1) == 0 then
      redis.call('HDEL', account .. ':open', fn)
    end
  end
end
