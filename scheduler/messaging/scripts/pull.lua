--[[
  Takes the first message of a queue. A repeated call gets the same message. While the reply is kept, the message can be put back
  (put-back.lua).

  KEYS[1] queue (sorted set): number (8 bytes) and message, by number
  KEYS[2] state (hash): `bytes` of the waiting messages, `last` number
  KEYS[3] reply to this call (string): number and message; empty when the call was cancelled
  KEYS[4..5] see include/queue-usage.lua
  KEYS[6] record of the invocation that pulls (hash)

  ARGV[1] how long an unused queue is kept, ms
  ARGV[2] how long the reply is kept, ms
  ARGV[3] epoch of the attempt that pulls, or '' for none
  ARGV[4] see include/queue-usage.lua

  Returns {1, number (8 bytes) and message}, or {0} when there is none; {-1} the attempt is over.
]]
--- @include "./include/queue-usage.lua"
--- @include "../../invocations/scripts/include/attempt.lua"

local known = redis.call('GET', KEYS[3])
if known == '' then
  return {0}
end
if known then
  return {1, known}
end
if not isCurrent(KEYS[6], ARGV[3]) then
  return {-1}
end
local first = redis.call('ZPOPMIN', KEYS[1])[1]
if not first then
  return {0}
end
-- The 8 bytes of the number before the message do not count.
redis.call('HINCRBY', KEYS[2], 'bytes', 8 - #first)
countQueue(ARGV[1])
redis.call('SET', KEYS[3], first, 'PX', ARGV[2])
return {1, first}
