--[[
  Removes a component that no version uses, and its bytes from its tenant's uploads.

  KEYS[1] component (string)
  KEYS[2] users of the component (set)

  ARGV[1] prefix of the keys of the uploading tenant's quotas
  ARGV[2] hash of the component

  Returns 1 removed, 0 it is used or not there.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../quotas/scripts/include/account.lua"
releaseBytes(ARGV[1], 'u:' .. ARGV[2])
redis.call('ZREM', ARGV[1] .. ':redis-ends', 'u:' .. ARGV[2])
if redis.call('SCARD', KEYS[2]) > 0 then
  return 0
end
return redis.call('DEL', KEYS[1])
