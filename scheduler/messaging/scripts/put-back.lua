--[[
  Cancels a pull: puts its message back into its place in the line. When the pull itself arrives only later, it takes nothing.

  KEYS[1] line (sorted set)
  KEYS[2] state (hash)
  KEYS[3] reply to the pull (string)
  KEYS[4..5] see include/line-usage.lua

  ARGV[1] channel of the line
  ARGV[2] how long an unused line is kept, ms
  ARGV[3] how long the reply is kept, ms
  ARGV[4] see include/line-usage.lua

  Returns 1 when a message was put back, else 0.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/line-usage.lua"

local taken = redis.call('GET', KEYS[3])
redis.call('SET', KEYS[3], '', 'PX', ARGV[3])
if not taken or taken == '' then
  return 0
end
redis.call('ZADD', KEYS[1], struct.unpack('>I8', taken), taken)
redis.call('HINCRBY', KEYS[2], 'bytes', #taken - 8)
countLine(ARGV[2])
redis.call('PUBLISH', ARGV[1], '')
return 1
