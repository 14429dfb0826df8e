-- Queues of messages, and broadcasts.
--- @include "../quotas/account.lua"

-- Counts the bytes of all queues of a tenant. An unused queue expires; a later push to any of the tenant's queues releases its bytes.
-- KEYS[1] queue (sorted set), KEYS[2] state (hash)
-- KEYS[4] usage (hash): `bytes` of all queues, and bytes of each queue by its key
-- KEYS[5] expiries (sorted set): queues by the time at which their keys expire, ms of this server's clock
-- The last ARGV is the prefix of the keys of the tenant's quotas.
local account = ARGV[#ARGV]

-- Bytes that a message, and a queue, count in addition to their content.
local MESSAGE_BYTES, QUEUE_BYTES = 64, 512

-- Bytes of all queues that have not expired.
local function queuesBytes()
  forgetQueuesOf(account, KEYS[4], KEYS[5])
  return tonumber(redis.call('HGET', KEYS[4], 'bytes') or 0)
end

-- Updates the bytes of the queue, and renews its expiry.
local function countQueue(keptMs)
  local bytes = tonumber(redis.call('HGET', KEYS[2], 'bytes') or 0) + redis.call('ZCARD', KEYS[1]) * MESSAGE_BYTES + QUEUE_BYTES
  local before = tonumber(redis.call('HGET', KEYS[4], KEYS[1]) or 0)
  redis.call('HINCRBY', KEYS[4], 'bytes', bytes - before)
  changeBytes(account, bytes - before)
  redis.call('HSET', KEYS[4], KEYS[1], bytes)
  redis.call('ZADD', KEYS[5], nowMs() + tonumber(keptMs), KEYS[1])
  redis.call('PEXPIRE', KEYS[1], keptMs)
  redis.call('PEXPIRE', KEYS[2], keptMs)
end

--- @script "push"
--[[
  Appends a message to a queue. A repeated call only returns the reply.

  KEYS[1] queue (sorted set): number (8 bytes) and message, by number
  KEYS[2] state (hash): `bytes` of the waiting messages, `last` number
  KEYS[3] reply to this call (string)
  KEYS[4..5] see above
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
  ARGV[10] see above

  Returns {1} when the message was added, else the reason:
    {-1, messages, bytes}      the queue is full; this much waits in it
    {-2, bytes}                all queues of the tenant together are full
    {-3}                       the attempt is over
    {-4, quota, limit, used}   the tenant may keep no more in Redis
]]
--- @include "../invocations/attempts.lua"

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

--- @script "pull"
--[[
  Takes the first message of a queue. A repeated call gets the same message. While the reply is kept, the message can be put back
  (`put-back`).

  KEYS[1] queue (sorted set): number (8 bytes) and message, by number
  KEYS[2] state (hash): `bytes` of the waiting messages, `last` number
  KEYS[3] reply to this call (string): number and message; empty when the call was cancelled
  KEYS[4..5] see above
  KEYS[6] record of the invocation that pulls (hash)

  ARGV[1] how long an unused queue is kept, ms
  ARGV[2] how long the reply is kept, ms
  ARGV[3] epoch of the attempt that pulls, or '' for none
  ARGV[4] see above

  Returns {1, number (8 bytes) and message}, or {0} when there is none; {-1} the attempt is over.
]]
--- @include "../invocations/attempts.lua"

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

--- @script "put-back"
--[[
  Cancels a pull: puts the message that the pull took back into its place in the queue. If the pull arrives only after this call, it takes nothing.

  KEYS[1] queue (sorted set): number (8 bytes) and message, by number
  KEYS[2] state (hash): `bytes` of the waiting messages, `last` number
  KEYS[3] reply to the pull (string)
  KEYS[4..5] see above

  ARGV[1] channel of the queue
  ARGV[2] how long an unused queue is kept, ms
  ARGV[3] how long the reply is kept, ms
  ARGV[4] see above

  Returns 1 when a message was put back, else 0.
]]
--- @include "../store/even-when-full.lua"

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

--- @script "broadcast"
--[[
  Sends a message to every process with subscriptions of a topic. A repeated call only returns the reply.

  KEYS[1] topic (hash): channel of a process to `<subscriptions>:<generation>`
  KEYS[2] reply to this call (string)
  KEYS[3] record of the invocation that sends (hash)

  ARGV[1] id of the topic, a zero byte and the message
  ARGV[2] how long the reply is kept, ms
  ARGV[3] epoch of the attempt that sends, or '' for none

  Publishes `<generation>`, a zero byte and ARGV[1] to each process. The process delivers only to subscriptions up to this generation, because later
  ones were not counted.
  Returns the number of subscriptions reached, or -1 when the attempt is over.
]]
--- @include "../invocations/attempts.lua"
local known = redis.call('GET', KEYS[2])
if known then
  return tonumber(known)
end
if not isCurrent(KEYS[3], ARGV[3]) then
  return -1
end
-- This write comes before the message is published: when a full Redis refuses the write, no subscriber must get the message.
redis.call('SET', KEYS[2], 0, 'PX', ARGV[2])
local reached = 0
local processes = redis.call('HGETALL', KEYS[1])
for i = 1, #processes, 2 do
  local count, generation = string.match(processes[i + 1], '^(%d+):(%d+)$')
  if redis.call('PUBLISH', processes[i], generation .. '\0' .. ARGV[1]) > 0 then
    reached = reached + tonumber(count)
  else
    -- Without a listener, the process has died, or is disconnected and registers again when it reconnects.
    redis.call('HDEL', KEYS[1], processes[i])
  end
end
redis.call('SET', KEYS[2], reached, 'PX', ARGV[2])
return reached
