--[[
  Counts what the attempt that ended an invocation was found to have used after its end: the record has it, and the counters what is new.

  KEYS[1] record (hash)

  ARGV[1] epoch of the attempt
  ARGV[2] its usage in all, see ../../usage/scripts/include/metering.lua
  ARGV[3] now, ms
  ARGV[4] what the keys of the tenant's usage begin with

  Returns 1 counted, by this call or the same one made before; 0 it did not end the invocation, or the record is gone.
]]
--- @include "../../usage/scripts/include/metering.lua"

local record = KEYS[1]
local status, epoch, fn = unpack(redis.call('HMGET', record, 'status', 'epoch', 'function'))
if epoch ~= ARGV[1] or not (status == 'succeeded' or status == 'failed' or status == 'cancelled') then
  return 0
end
local added = newUsage(record, epoch, ARGV[2])
if next(added) then
  -- From here on the record's usage is the sum of what was counted, and not what the terminal event said.
  redis.call('HSETNX', record, 'usageBefore', string.rep('0 ', METERED - 1) .. '0')
  count(ARGV[4], fn, tonumber(ARGV[3]), added)
end
return 1
