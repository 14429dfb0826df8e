--- @include "./limits.lua"
--- @include "./account.lua"
--- @include "./forget-expired.lua"
--- @include "../../../messaging/scripts/include/forget-queues.lua"

-- Releases the bytes of expired content, up to 256 entries of each kind, and returns the bytes that the account then has. The keys of message
-- queues begin with `lines`.
local function settledBytes(account, now)
  local prefix, tenant = string.match(account, '^(.*):account:([^:]*)$')
  releaseEnded(account, now)
  forgetExpired(account, prefix .. ':file-usage:' .. tenant, prefix .. ':file-expiries:' .. tenant, now)
  forgetQueuesOf(account, prefix .. ':lines:' .. tenant .. ':usage', prefix .. ':lines:' .. tenant .. ':expiries')
  return bytesOf(account)
end

-- nil when the tenant may keep `added` more bytes in Redis, else {quota, limit, used}.
local function bytesRefusal(account, added, now)
  local limit = added > 0 and quotaLimit(account, 'redis-bytes', '', now)
  if not limit or bytesOf(account) + added <= limit then
    return nil
  end
  local used = settledBytes(account, now)
  return used + added > limit and {'redis-bytes', limit, used} or nil
end
