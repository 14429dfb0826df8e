--[[
  Appends a message to a queue. A repeated call only returns the reply.

  KEYS[1] queue (sorted set): number (8 bytes) and message, by number
  KEYS[2] state (hash): `bytes` of the waiting messages, `last` number
  KEYS[3] reply to this call (string)
  KEYS[4..5] see include/queue-usage.lua
  KEYS[6] record of the invocation that pushes (hash)

  ARGV[1] channel of the queue
  ARGV[2] the message
  ARGV[3] how many messages may wait
  ARGV[4] how many bytes may wait
  ARGV[5] how long an unused queue is kept, ms
  ARGV[6] how long the reply is kept, ms
  ARGV[7] how many bytes all queues of the tenant may take
  ARGV[8] epoch of the attempt that pushes, or '' for none
  ARGV[9] now, ms
  ARGV[10] see include/queue-usage.lua

  Returns {1} when the message was added, else the reason:
    {-1, messages, bytes}      the queue is full; this much waits in it
    {-2, bytes}                all queues of the tenant together are full
    {-3}                       the attempt is over
    {-4, quota, limit, used}   the tenant may keep no more in Redis
]]
--- @include "./include/queue-usage.lua"
--- @include "../../invocations/scripts/include/attempt.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"

if redis.call('EXISTS', KEYS[3]) == 1 then
  return {1}
end
if not isCurrent(KEYS[6], ARGV[8]) then
  return {-3}
end
local count = redis.call('ZCARD', KEYS[1])
local bytes = tonumber(redis.call('HGET', KEYS[2], 'bytes') or 0)
if count >= tonumber(ARGV[3]) or bytes + #ARGV[2] > tonumber(ARGV[4]) then
  return {-1, count, bytes}
end
local all = queuesBytes()
local known = redis.call('HEXISTS', KEYS[4], KEYS[1]) == 1
local added = #ARGV[2] + MESSAGE_BYTES + (known and 0 or QUEUE_BYTES)
if all + added > tonumber(ARGV[7]) then
  return {-2, all}
end
local refusal = bytesRefusal(account, added, tonumber(ARGV[9]))
if refusal then
  return {-4, unpack(refusal)}
end
local number = redis.call('HINCRBY', KEYS[2], 'last', 1)
redis.call('HINCRBY', KEYS[2], 'bytes', #ARGV[2])
redis.call('ZADD', KEYS[1], number, struct.pack('>I8', number) .. ARGV[2])
countQueue(ARGV[5])
redis.call('SET', KEYS[3], '1', 'PX', ARGV[6])
redis.call('PUBLISH', ARGV[1], '')
return {1}
