--[[
  Lets one process in each interval cancel the invocations of a removed function again.

  KEYS[1] mark of the last round (string)
  ARGV[1] interval, ms

  Returns 1 when the caller is the first in this interval and cancels, else 0.
]]
--- @include "../../store/scripts/even-when-full.lua"
return redis.call('SET', KEYS[1], '1', 'PX', ARGV[1], 'NX') and 1 or 0
