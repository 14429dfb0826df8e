-- Bytes of all lines of a tenant. A line that nobody touches is forgotten, and what it had is given back with the next look at the tenant's.
-- KEYS[1] line (sorted set), KEYS[2] state (hash)
-- KEYS[4] usage (hash): `bytes` in all, and by line
-- KEYS[5] expiries (sorted set): lines by when they are forgotten, in ms of this server's clock, as their keys are

-- What a message and a line take besides what is said in them.
local MESSAGE_BYTES, LINE_BYTES = 64, 512
local FORGOTTEN_AT_ONCE = 256

local function nowMs()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Bytes of all lines that are not forgotten.
local function linesBytes()
  for _, line in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', nowMs(), 'LIMIT', 0, FORGOTTEN_AT_ONCE)) do
    redis.call('HINCRBY', KEYS[4], 'bytes', -tonumber(redis.call('HGET', KEYS[4], line) or 0))
    redis.call('HDEL', KEYS[4], line)
    redis.call('ZREM', KEYS[5], line)
  end
  return tonumber(redis.call('HGET', KEYS[4], 'bytes') or 0)
end

-- Counts the line as it is now, and keeps it for another while.
local function countLine(keptMs)
  local bytes = tonumber(redis.call('HGET', KEYS[2], 'bytes') or 0) + redis.call('ZCARD', KEYS[1]) * MESSAGE_BYTES + LINE_BYTES
  local before = tonumber(redis.call('HGET', KEYS[4], KEYS[1]) or 0)
  redis.call('HINCRBY', KEYS[4], 'bytes', bytes - before)
  redis.call('HSET', KEYS[4], KEYS[1], bytes)
  redis.call('ZADD', KEYS[5], nowMs() + tonumber(keptMs), KEYS[1])
  for _, key in ipairs({KEYS[1], KEYS[2], KEYS[4], KEYS[5]}) do
    redis.call('PEXPIRE', key, keptMs)
  end
end
