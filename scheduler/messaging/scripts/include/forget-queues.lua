--- @include "../../../quotas/scripts/include/forget-expired.lua"
-- The time in ms, by the clock of this Redis server, by which its keys expire.
local function nowMs()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Releases the bytes of expired queues; queue-usage.lua describes `usage` and `expiries`.
local function forgetQueuesOf(account, usage, expiries)
  forgetExpired(account, usage, expiries, nowMs())
end
