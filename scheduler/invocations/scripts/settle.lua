--[[
  Counts usage that became known after an attempt ended its invocation. The record stores the total, and the counters add the increase. Returns
  the tokens that the end kept granted for this usage.

  KEYS[1] record (hash)

  ARGV[1] epoch of the attempt
  ARGV[2] its usage in all, see ../../usage/scripts/include/metering.lua
  ARGV[3] now, ms
  ARGV[4] prefix of the keys of the tenant's usage
  ARGV[5] id of the invocation, or '' when its end kept no tokens granted

  Returns 1 counted, by this call or the same one made before; 0 the attempt did not end the invocation, or the record is gone.
]]
--- @include "../../quotas/scripts/include/limits.lua"
--- @include "../../usage/scripts/include/metering.lua"
--- @include "../../quotas/scripts/include/grants.lua"

local record = KEYS[1]
local status, epoch, fn = unpack(redis.call('HMGET', record, 'status', 'epoch', 'function'))
if epoch ~= ARGV[1] or not (status == 'succeeded' or status == 'failed' or status == 'cancelled') then
  return 0
end
local added = newUsage(record, epoch, ARGV[2])
if next(added) then
  -- The counted usage now exceeds that of the terminal event. `totalUsage` of metered.ts reads the counted usage only from a record with
  -- `usageBefore`, so set it to zeros if the record has none.
  redis.call('HSETNX', record, 'usageBefore', string.rep('0 ', METERED - 1) .. '0')
  addUsage(ARGV[4], fn, tonumber(ARGV[3]), added)
end
if ARGV[5] ~= '' then
  returnGrant(ARGV[4], ARGV[5], 0, tonumber(ARGV[3]))
end
return 1
