--[[
  Removes a tenant's upload of a component, and the component when neither a version nor another tenant's upload needs it.

  KEYS[1] component (string)
  KEYS[2] users of the component (set)
  KEYS[3] accounts that hold an upload of the component (set)

  ARGV[1] prefix of the keys of the uploading tenant's quotas
  ARGV[2] hash of the component
  ARGV[3] now, ms

  Returns 1 removed, 0 it is needed or not there.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../quotas/scripts/include/account.lua"
local account, holder, now = ARGV[1], 'u:' .. ARGV[2], tonumber(ARGV[3])
releaseBytes(account, holder)
redis.call('ZREM', account .. ':redis-ends', holder)
redis.call('SREM', KEYS[3], account)
if redis.call('SCARD', KEYS[2]) > 0 then
  return 0
end
for _, other in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  local ends = redis.call('ZSCORE', other .. ':redis-ends', holder)
  -- The other tenant's deploy still builds from these bytes.
  if ends and tonumber(ends) > now then
    return 0
  end
end
return redis.call('DEL', KEYS[1])
