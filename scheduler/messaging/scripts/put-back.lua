--[[
  Cancels a pull: puts the message that the pull took back into its place in the queue. If the pull arrives only after this call, it takes nothing.

  KEYS[1] queue (sorted set): number (8 bytes) and message, by number
  KEYS[2] state (hash): `bytes` of the waiting messages, `last` number
  KEYS[3] reply to the pull (string)
  KEYS[4..5] see include/queue-usage.lua

  ARGV[1] channel of the queue
  ARGV[2] how long an unused queue is kept, ms
  ARGV[3] how long the reply is kept, ms
  ARGV[4] see include/queue-usage.lua

  Returns 1 when a message was put back, else 0.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/queue-usage.lua"

local taken = redis.call('GET', KEYS[3])
redis.call('SET', KEYS[3], '', 'PX', ARGV[3])
if not taken or taken == '' then
  return 0
end
redis.call('ZADD', KEYS[1], struct.unpack('>I8', taken), taken)
-- The 8 bytes of the number before the message do not count.
redis.call('HINCRBY', KEYS[2], 'bytes', #taken - 8)
countQueue(ARGV[2])
redis.call('PUBLISH', ARGV[1], '')
return 1
