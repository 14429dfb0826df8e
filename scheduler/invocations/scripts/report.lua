--[[
  Takes the usage of a running attempt that has no event to append.

  KEYS[1] record (hash)

  ARGV[1] epoch of the attempt
  ARGV[2] its usage so far, see ../../usage/scripts/include/metering.lua
  ARGV[3] now, ms

  Returns {1, quotaReply of ../../quotas/scripts/include/exceeded.lua}, 0 stale epoch (or no such record), -1 ended.
]]
--- @include "../../usage/scripts/include/metering.lua"
--- @include "../../quotas/scripts/include/limits.lua"
--- @include "../../quotas/scripts/include/exceeded.lua"

local record, now = KEYS[1], tonumber(ARGV[3])
local status, epoch, account, fn = unpack(redis.call('HMGET', record, 'status', 'epoch', 'account', 'function'))
if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
  return -1
end
if status ~= 'running' or epoch ~= ARGV[1] then
  return 0
end
meter(record, epoch, ARGV[2], now)
return {1, unpack(quotaReply(account, fn, now))}
