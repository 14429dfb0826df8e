--[[
  Writes a value under a new version, unconditionally or only over a given version. When a call that has written is sent again, it only returns
  the first reply.

  KEYS[1..5] see include/stored.lua
  KEYS[6] reply to this call (string)
  KEYS[7..8] usage and expiries of the tenant's files, see ../../quotas/scripts/include/storage.lua
  KEYS[9] record of the invocation that writes (hash)

  ARGV[1..2] see include/stored.lua
  ARGV[3] key
  ARGV[4] value
  ARGV[5] expiry of the value, ms since the epoch; '' for none, or with a version in ARGV[6] for the present expiry
  ARGV[6] the version that the key must have (8 bytes), 'none' when it must have no value, or '' for any
  ARGV[7] maximum bytes of the tenant's store: keys, values, and 8 bytes for each version
  ARGV[8] keys that the tenant may store
  ARGV[9] maximum number of expired keys to drop before the write
  ARGV[10] how long the reply is kept, ms
  ARGV[11] epoch of the attempt that writes, or '' for none
  ARGV[12] see include/stored.lua

  Returns {1, version (8 bytes)} written
          {0} the key has another version
          {-1, bytes, keys} the store, which has this size, has no room
          {-2, quota, limit, used} the quota has no room
          {-3} the attempt is over
]]
--- @include "./include/stored.lua"
--- @include "../../invocations/scripts/include/attempt.lua"
--- @include "../../quotas/scripts/include/storage.lua"

local known = redis.call('GET', KEYS[6])
if known then
  return {1, known}
end
if not isCurrent(KEYS[9], ARGV[11]) then
  return {-3}
end

local key, value, expiresAt, expected = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local swept = sweep(tonumber(ARGV[9]))
local expiry = redis.call('ZSCORE', expiries, key)
if expiry and tonumber(expiry) <= now then
  remove(key)
  expiry = false
  swept = swept + 1
end
if swept > 0 then
  schedule()
end

local before = redis.call('HSTRLEN', values, key)
if expected == 'none' and before > 0 then
  return {0}
end
if expected ~= '' and expected ~= 'none' then
  local stored = before > 0 and redis.call('HGET', values, key)
  if not stored or string.sub(stored, 1, 8) ~= expected then
    return {0}
  end
end

local added = 8 + #value - before
local count = redis.call('HLEN', values)
if before == 0 then
  added = added + #key
  count = count + 1
end
local bytes = tonumber(redis.call('HGET', usage, 'bytes') or 0)
if added > 0 and (bytes + added > tonumber(ARGV[7]) or count > tonumber(ARGV[8])) then
  return {-1, bytes, redis.call('HLEN', values)}
end
local refusal = storageRefusal(account, usage, KEYS[7], KEYS[8], added, now)
if refusal then
  return {-2, unpack(refusal)}
end

local version = struct.pack('>I8', redis.call('HINCRBY', usage, 'version', 1))
redis.call('HINCRBY', usage, 'bytes', added)
changeBytes(account, added)
redis.call('HSET', values, key, version .. value)
if before == 0 then
  redis.call('ZADD', names, 0, key)
end
if expiresAt ~= '' then
  redis.call('ZADD', expiries, expiresAt, key)
  schedule()
elseif expiry and expected == '' then
  redis.call('ZREM', expiries, key)
  schedule()
end
redis.call('SET', KEYS[6], version, 'PX', ARGV[10])
return {1, version}
