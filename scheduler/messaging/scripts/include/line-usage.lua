--- @include "./forget-lines.lua"

-- Bytes of all lines of a tenant. A line that nobody touches is forgotten, and what it had is given back with the next look at the tenant's.
-- KEYS[1] line (sorted set), KEYS[2] state (hash)
-- KEYS[4] usage (hash): `bytes` in all, and by line
-- KEYS[5] expiries (sorted set): lines by when they are forgotten, in ms of this server's clock, as their keys are
-- The last argument is what the keys of the tenant's quotas begin with.
local account = ARGV[#ARGV]

-- What a message and a line take besides what is said in them.
local MESSAGE_BYTES, LINE_BYTES = 64, 512

-- Bytes of all lines that are not forgotten.
local function linesBytes()
  forgetLinesOf(account, KEYS[4], KEYS[5])
  return tonumber(redis.call('HGET', KEYS[4], 'bytes') or 0)
end

-- Counts the line as it is now, and keeps it for another while.
local function countLine(keptMs)
  local bytes = tonumber(redis.call('HGET', KEYS[2], 'bytes') or 0) + redis.call('ZCARD', KEYS[1]) * MESSAGE_BYTES + LINE_BYTES
  local before = tonumber(redis.call('HGET', KEYS[4], KEYS[1]) or 0)
  redis.call('HINCRBY', KEYS[4], 'bytes', bytes - before)
  changeBytes(account, bytes - before)
  redis.call('HSET', KEYS[4], KEYS[1], bytes)
  redis.call('ZADD', KEYS[5], nowMs() + tonumber(keptMs), KEYS[1])
  redis.call('PEXPIRE', KEYS[1], keptMs)
  redis.call('PEXPIRE', KEYS[2], keptMs)
end
