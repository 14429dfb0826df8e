-- Counts the end of an invocation, with what is new of its usage. An invocation that a client made is open no more.
local ENDS = {succeeded = SUCCEEDED, failed = FAILED, cancelled = CANCELLED}

local function countEnd(record, status, code, now, added)
  local account, fn, parent = unpack(redis.call('HMGET', record, 'account', 'function', 'parent'))
  if not account then
    return
  end
  added[ENDS[status]] = 1
  count(account, fn, now, added)
  if status == 'failed' then
    countInMinute(account, now, 'f:' .. code)
  end
  if not parent then
    redis.call('HINCRBY', account .. ':open', '*', -1)
    if redis.call('HINCRBY', account .. ':open', fn, -1) == 0 then
      redis.call('HDEL', account .. ':open', fn)
    end
  end
end
