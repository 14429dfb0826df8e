-- What a tenant keeps in Redis, in bytes of content: one account, which every script changes that writes or drops a value. `quotas/README.md`
-- says what counts for how much. Of the hash `<account>:redis`, `bytes` is the sum of all; further fields are holders, whose bytes nothing else
-- says:
--   `i:<invocation>`: record, input, events and waiting messages of one that has not ended;
--   `l:<function>`: its log; `u:<component>`: an uploaded component that no version uses yet;
--   `@<minute>`: what was given a time to live that ends in that minute or the one before.
-- The sorted set `<account>:redis-ends` has those holders that end by themselves, by when (ms since the epoch).
-- Stored values, files, lines and components have accounts of their own, which are part of the sum.
local RECORD_BYTES, EVENT_BYTES, LOG_LINE_BYTES = 2048, 64, 128
local LIFETIME_STEP_MS = 60000
-- How many holders one call lets go of.
local ENDED_AT_ONCE = 256

local function accountKey(account)
  return account .. ':redis'
end

-- Changes the sum by what an account of its own has counted.
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

-- Answers what the holder had, or nil. Its first write may take memory: a script that stores something afterwards is refused by a full Redis.
local function releaseBytes(account, holder)
  local bytes = redis.call('HGET', accountKey(account), holder)
  if not bytes then
    return nil
  end
  changeBytes(account, -tonumber(bytes))
  redis.call('HDEL', accountKey(account), holder)
  return tonumber(bytes)
end

-- The holder ends at that time, unless it is told another one before.
local function endHolder(account, holder, at)
  redis.call('ZADD', account .. ':redis-ends', at, holder)
end

-- Counts bytes that Redis drops at that time.
local function holdUntil(account, bytes, at)
  local step = math.ceil(at / LIFETIME_STEP_MS)
  local holder = '@' .. string.format('%.0f', step)
  holdBytes(account, holder, bytes)
  endHolder(account, holder, step * LIFETIME_STEP_MS)
end

-- Gives back what has ended by now.
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
