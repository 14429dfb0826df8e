--[[
  Tells a runtime of a cancel that concerns a job which it holds and has not begun.

  KEYS[1] the runtime's cancels (hash)
  ARGV[1] the channel on which it hears of them
  ARGV[2] id
  ARGV[3] reason
  ARGV[4] how long the cancel is listed, ms

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2] .. '\0' .. ARGV[3])
return 1
