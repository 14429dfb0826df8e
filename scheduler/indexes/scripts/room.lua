--[[
  Reads how many bytes the indexes of a tenant may have beside its other storage.

  KEYS[1..3] usage of its stored values, usage and expiries of its files

  ARGV[1] prefix of the keys of its quotas
  ARGV[2] now, ms

  Returns the bytes, or -1 without a limit.
]]
--- @include "../../quotas/scripts/include/storage.lua"

local account, now = ARGV[1], tonumber(ARGV[2])
local limit = quotaLimit(account, 'storage-bytes', '', now)
if not limit then
  return -1
end
return math.max(0, limit - storedBytes(account, KEYS[1], KEYS[2], KEYS[3], now) + indexBytes(account))
