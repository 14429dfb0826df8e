--- @include "../../../quotas/scripts/include/account.lua"

-- Uses up the numbers of events that a reader may have been shown and the log does not have: their attempt has not written them down, and never will.
-- Readers are told with an event `gap` behind them. `a` holds the end's arguments; answers the number of the log's last event.
local function passLostTail(a, seq)
  local shown, account = unpack(redis.call('HMGET', KEYS[1], 'shown', 'account'))
  seq = tonumber(seq)
  if not shown or tonumber(shown) <= seq then
    return seq
  end
  local number, data = tonumber(shown) + 1, '{"after":' .. seq .. '}'
  redis.call('XADD', KEYS[2], number .. '-0', 'e', 'gap', 'd', data)
  if account then
    holdBytes(account, 'i:' .. a.id, EVENT_BYTES + #data)
  end
  redis.call('HSET', KEYS[1], 'seq', number)
  redis.call('HDEL', KEYS[1], 'shown')
  redis.call('PUBLISH', a.live, number .. '\0gap\0' .. data)
  return number
end
