--- @include "../../../quotas/scripts/include/account.lua"
-- A log is cut once it exceeds its bound by this many events.
local EVENTS_CUT_AT_ONCE = 128

-- Drops the entries whose events all precede the newest `keep`; `last` is the newest event's number. Returns the freed bytes.
local function cutEvents(events, last, keep)
  local oldest = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
  if tonumber(string.match(oldest[1], '^%d+')) > last - keep - EVENTS_CUT_AT_ONCE then
    return 0
  end
  local freed = 0
  for _, entry in ipairs(redis.call('XRANGE', events, '-', string.format('(%.0f-0', last - keep + 1))) do
    for i = 4, #entry[2], 4 do
      freed = freed + EVENT_BYTES + #entry[2][i]
    end
  end
  redis.call('XTRIM', events, 'MINID', string.format('%.0f-0', last - keep + 1))
  return freed
end
