--- @include "./forget-queues.lua"

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
