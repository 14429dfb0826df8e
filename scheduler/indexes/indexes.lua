-- The bytes of a tenant's indexes.

--- @script "room"
--[[
  Reads how many bytes the indexes of a tenant may have beside its other storage.

  KEYS[1..3] usage of its stored values, usage and expiries of its files

  ARGV[1] prefix of the keys of its quotas
  ARGV[2] now, ms

  Returns the bytes, or -1 without a limit.
]]
--- @include "../quotas/account.lua"

local account, now = ARGV[1], tonumber(ARGV[2])
local limit = quotaLimit(account, 'storage-bytes', '', now)
if not limit then
  return -1
end
return math.max(0, limit - storedBytes(account, KEYS[1], KEYS[2], KEYS[3], now) + indexBytes(account))

--- @script "note"
--[[
  Stores a sum of the bytes of a tenant's indexes, unless the sum is outdated. A sum of the same run of the index host as the stored one is
  outdated unless its number is larger. A sum of the run before is always outdated.

  KEYS[1] the stored sum (hash): `bytes`, `life` (id of its run), `sequence` (its number), `before` (id of the run before)

  ARGV[1] bytes
  ARGV[2] id of the index host's run
  ARGV[3] number of the sum among those of the run
]]
--- @include "../store/even-when-full.lua"

local life, sequence, before = unpack(redis.call('HMGET', KEYS[1], 'life', 'sequence', 'before'))
if ARGV[2] == before or (ARGV[2] == life and tonumber(ARGV[3]) <= tonumber(sequence)) then
  return 1
end
if ARGV[2] ~= life then
  redis.call('HSET', KEYS[1], 'before', life or '')
end
redis.call('HSET', KEYS[1], 'bytes', ARGV[1], 'life', ARGV[2], 'sequence', ARGV[3])
return 1
