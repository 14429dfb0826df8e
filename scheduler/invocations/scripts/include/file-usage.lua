--- @include "../../../quotas/scripts/include/forget-expired.lua"

-- Bytes of all stored files of a tenant. The record of each of its invocations holds the keys of the counts:
--   fileUsageKey (hash): `bytes` in all, and by invocation;
--   fileExpiriesKey (sorted set): ended invocations by the expiry time of their files.

local function fileUsage(record)
  local usage = redis.call('HGET', record, 'fileUsageKey')
  return usage and tonumber(redis.call('HGET', usage, 'bytes') or 0) or 0
end

local function addFileUsage(record, id, bytes)
  local usage, account = unpack(redis.call('HMGET', record, 'fileUsageKey', 'account'))
  if usage then
    changeBytes(account, bytes)
    redis.call('HINCRBY', usage, 'bytes', bytes)
    redis.call('HINCRBY', usage, id, bytes)
  end
end

-- Sets the expiry time of an ended invocation's files.
local function expireFiles(record, id, at)
  local usage, expiries = unpack(redis.call('HMGET', record, 'fileUsageKey', 'fileExpiriesKey'))
  if usage and redis.call('HEXISTS', usage, id) == 1 then
    redis.call('ZADD', expiries, at, id)
  end
end

-- Releases the bytes of files that have expired by now.
local function forgetFiles(record, now)
  local usage, expiries, account = unpack(redis.call('HMGET', record, 'fileUsageKey', 'fileExpiriesKey', 'account'))
  if not usage then
    return
  end
  forgetExpired(account, usage, expiries, now)
end
