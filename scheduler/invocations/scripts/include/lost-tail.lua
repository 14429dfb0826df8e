--- @include "../../../quotas/scripts/include/account.lua"
--- @include "./publish-live.lua"

-- Skips the numbers of events that readers may have seen and the log lacks, since their attempt will never write them. Writes an event
-- `gap` after those numbers to tell readers. `a` holds the arguments of endInvocation. Returns the number of the log's last event.
local function passLostTail(a, seq)
  local shown, account, epoch, submitter = unpack(redis.call('HMGET', a.record, 'shown', 'account', 'epoch', 'submitter'))
  seq = tonumber(seq)
  if not shown or tonumber(shown) <= seq then
    return seq
  end
  local number, data = tonumber(shown) + 1, '{"after":' .. seq .. '}'
  redis.call('XADD', a.events, number .. '-' .. epoch, 'e', 'gap', 'd', data)
  if account then
    holdBytes(account, 'i:' .. a.id, EVENT_BYTES + #data)
  end
  redis.call('HSET', a.record, 'seq', number)
  redis.call('HDEL', a.record, 'shown')
  publishLive(a.live, submitter, a.id, epoch .. '-' .. number .. '\0gap\0' .. data)
  return number
end
