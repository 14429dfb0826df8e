--- @include "../../../quotas/scripts/include/account.lua"
-- An event log is cut once it has so many events more than it keeps.
local EVENTS_CUT_AT_ONCE = 128

-- Drops the oldest events past that bound; answers what they had.
local function cutEvents(events, keep)
  local excess = redis.call('XLEN', events) - keep
  if excess < EVENTS_CUT_AT_ONCE then
    return 0
  end
  local freed, last = 0, nil
  for _, event in ipairs(redis.call('XRANGE', events, '-', '+', 'COUNT', excess)) do
    freed, last = freed + EVENT_BYTES + #event[2][4], event[1]
  end
  local seq = tonumber(string.match(last, '^%d+'))
  redis.call('XTRIM', events, 'MINID', string.format('%.0f-0', seq + 1))
  return freed
end
