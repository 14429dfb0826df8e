--[[
  Whether the invocations of a removed function are to be cancelled again now: once in a while, by one process of all.

  KEYS[1] there while they were cancelled a moment ago (string)
  ARGV[1] how long that is, ms

  Returns 1, or 0.
]]
--- @include "../../store/scripts/even-when-full.lua"
return redis.call('SET', KEYS[1], '1', 'PX', ARGV[1], 'NX') and 1 or 0
