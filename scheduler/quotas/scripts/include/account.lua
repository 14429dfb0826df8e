-- Bytes of content that a tenant keeps in Redis, as one account. Every script that writes or drops a value updates it; `quotas/README.md`
-- gives the weights. In the hash `<account>:redis`, `bytes` is the sum. The other fields are holders, whose bytes are recorded nowhere
-- else:
--   `i:<invocation>`: record, input, events and waiting messages of an invocation that has not ended;
--   `l:<function>`: its log; `u:<component>`: an uploaded component that no version uses yet;
--   `@<minute>`: values with a time to live that ends in that minute or the one before.
-- The sorted set `<account>:redis-ends` has the holders that expire, by expiry (ms since the epoch).
-- Stored values, files, message queues and components have accounts of their own, which the sum includes.
local RECORD_BYTES, EVENT_BYTES, LOG_LINE_BYTES = 2048, 64, 128
local LIFETIME_STEP_MS = 60000
-- Maximum holders that one call releases.
local ENDED_AT_ONCE = 256

local function accountKey(account)
  return account .. ':redis'
end

-- Adds a change of another account, such as that of files or message queues, to the sum.
local function changeBytes(account, bytes)
  if bytes ~= 0 then
    redis.call('HINCRBY', accountKey(account), 'bytes', bytes)
  end
end

local function holdBytes(account, holder, bytes)
  if bytes ~= 0 then
    redis.call('HINCRBY', accountKey(account), holder, bytes)
    changeBytes(account, bytes)
  end
end

-- Releases a holder and returns its bytes, or nil. A full Redis refuses the first write, so a script that stores something later stops here.
local function releaseBytes(account, holder)
  local bytes = redis.call('HGET', accountKey(account), holder)
  if not bytes then
    return nil
  end
  changeBytes(account, -tonumber(bytes))
  redis.call('HDEL', accountKey(account), holder)
  return tonumber(bytes)
end

-- Sets when the holder ends; a later call replaces that time.
local function endHolder(account, holder, at)
  redis.call('ZADD', account .. ':redis-ends', at, holder)
end

-- Counts bytes that expire in Redis at `at`.
local function holdUntil(account, bytes, at)
  local step = math.ceil(at / LIFETIME_STEP_MS)
  local holder = '@' .. string.format('%.0f', step)
  holdBytes(account, holder, bytes)
  endHolder(account, holder, step * LIFETIME_STEP_MS)
end

-- Releases holders that have ended by now.
local function releaseEnded(account, now)
  local ends = account .. ':redis-ends'
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, ENDED_AT_ONCE)) do
    releaseBytes(account, holder)
    redis.call('ZREM', ends, holder)
  end
end

local function bytesOf(account)
  return math.max(0, tonumber(redis.call('HGET', accountKey(account), 'bytes') or 0))
end
