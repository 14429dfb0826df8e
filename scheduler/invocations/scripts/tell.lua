--[[
  Tells a runtime of a cancel for a job that the runtime holds and has not begun.

  KEYS[1] the runtime's cancels (hash)
  ARGV[1] channel on which the runtime hears of cancels
  ARGV[2] id
  ARGV[3] reason
  ARGV[4] retention of the runtime's list of cancels, ms

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2] .. '\0' .. ARGV[3])
return 1
