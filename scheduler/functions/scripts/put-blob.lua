--[[
  Stores the bytes of a component. They expire unless a function version uses them by then.

  KEYS[1] component (string)
  KEYS[2] users of the component (set)
  KEYS[3] accounts that hold an upload of the component (set)
  ARGV[1] bytes
  ARGV[2] how long they are kept without a user, ms
  ARGV[3] now, ms
  ARGV[4] account of the uploading tenant: the prefix of the keys of its quotas
  ARGV[5] hash of the bytes

  Returns 1 stored, 0 they were there already, {-4, quota, limit, used} the tenant may keep no more bytes in Redis.
]]
--- @include "../../quotas/scripts/include/bytes-limit.lua"
local account, now, holder = ARGV[4], tonumber(ARGV[3]), 'u:' .. ARGV[5]
-- `holder` is the upload's entry in the account. A component that a version uses counts with that version instead.
if redis.call('SCARD', KEYS[2]) == 0 and redis.call('HEXISTS', accountKey(account), holder) == 0 then
  local refusal = bytesRefusal(account, #ARGV[1], now)
  if refusal then
    return {-4, unpack(refusal)}
  end
  holdBytes(account, holder, #ARGV[1])
end
if redis.call('HEXISTS', accountKey(account), holder) == 1 then
  endHolder(account, holder, now + tonumber(ARGV[2]))
  redis.call('SADD', KEYS[3], account)
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('SCARD', KEYS[2]) == 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
