-- Bytes of content that a tenant keeps in Redis, as one account. Every script that stores or drops content updates it; `quotas/README.md`
-- gives the weights. In the hash `<account>:redis`, `bytes` is the sum over all content. Each other field is a holder, a part of the content
-- with its bytes:
--   `i:<invocation>`: record, input, events and waiting messages of an invocation that has not ended;
--   `l:<function>`: its log; `u:<component>`: an uploaded component that no version uses yet;
--   `@<minute>`: content of ended invocations that expires within one minute, the last one before `<minute>` minutes since the epoch.
-- The sorted set `<account>:redis-ends` has the holders whose content expires, by the time at which they end (ms since the epoch).
-- The sum also includes content without a holder, which other hashes count: stored values, files, message queues, and versions of functions with
-- their components.
local RECORD_BYTES, EVENT_BYTES, LOG_LINE_BYTES = 2048, 64, 128
-- The expiry of a holder `@<minute>` is a multiple of this.
local LIFETIME_STEP_MS = 60000
-- Maximum holders that one call of `releaseEnded` releases.
local ENDED_AT_ONCE = 256

local function accountKey(account)
  return account .. ':redis'
end

-- Adds a change to the sum alone: for content without a holder.
local function changeBytes(account, bytes)
  if bytes ~= 0 then
    redis.call('HINCRBY', accountKey(account), 'bytes', bytes)
  end
end

-- Adds bytes, which may be negative, to a holder and to the sum.
local function holdBytes(account, holder, bytes)
  if bytes ~= 0 then
    redis.call('HINCRBY', accountKey(account), holder, bytes)
    changeBytes(account, bytes)
  end
end

-- Removes a holder with its bytes. Returns the bytes; nil when there is no such holder. The sum changes first: a full Redis refuses this first
-- write and thereby ends the script before anything has changed. It would accept an HDEL, and after it also writes that take memory
-- (`store/scripts/even-when-full.lua`).
local function releaseBytes(account, holder)
  local bytes = redis.call('HGET', accountKey(account), holder)
  if not bytes then
    return nil
  end
  changeBytes(account, -tonumber(bytes))
  redis.call('HDEL', accountKey(account), holder)
  return tonumber(bytes)
end

-- Sets when a holder ends, ms since the epoch; a later call replaces that time.
local function endHolder(account, holder, at)
  redis.call('ZADD', account .. ':redis-ends', at, holder)
end

-- Releases the bytes of holders that have ended by `now`: Redis has dropped their content.
local function releaseEnded(account, now)
  local ends = account .. ':redis-ends'
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, ENDED_AT_ONCE)) do
    releaseBytes(account, holder)
    redis.call('ZREM', ends, holder)
  end
end

-- The sum over all content. A fault may have made it negative; it then counts as 0.
local function bytesOf(account)
  return math.max(0, tonumber(redis.call('HGET', accountKey(account), 'bytes') or 0))
end
