-- A tenant's stored values.
--- @include "../quotas/account.lua"

-- A tenant's store. KEYS[1] values (hash), KEYS[2] names (sorted set), KEYS[3] expiries (sorted set), KEYS[4] usage (hash), KEYS[5] sweeps
-- (sorted set); ARGV[1] tenant, ARGV[2] now, ms; the last argument is the prefix of the keys of the tenant's quotas.
local values, names, expiries, usage, sweeps = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tenant, account = ARGV[1], ARGV[#ARGV]

-- Drops a key with its expiry and bytes; returns true when the key existed. Changes the count of bytes first: when this is the script's first
-- write, a full Redis refuses it, and the script ends without effect. A full Redis would accept an HDEL, and then also writes that take memory
-- (`../store/even-when-full.lua`).
local function remove(key)
  local bytes = redis.call('HSTRLEN', values, key)
  if bytes == 0 then
    return false
  end
  redis.call('HINCRBY', usage, 'bytes', -(bytes + #key))
  redis.call('HDEL', values, key)
  redis.call('ZREM', names, key)
  redis.call('ZREM', expiries, key)
  changeBytes(account, -(bytes + #key))
  return true
end

-- Drops up to `count` keys that have expired; returns their number.
local function sweep(now, count)
  local over = redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, count)
  for _, key in ipairs(over) do
    remove(key)
  end
  return #over
end

-- Stores the time at which the tenant's next key expires. `KeyValues.sweep` sweeps the stores whose time has passed.
local function schedule()
  local first = redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')
  if first[2] then
    redis.call('ZADD', sweeps, first[2], tenant)
  else
    redis.call('ZREM', sweeps, tenant)
  end
end

--- @script "write"
--[[
  Writes a value under a new version, unconditionally or only over a given version. When a call that has written is sent again, it only returns
  the first reply.

  KEYS[1..5] see above
  KEYS[6] reply to this call (string)
  KEYS[7..8] usage and expiries of the tenant's files, see ../quotas/account.lua
  KEYS[9] record of the invocation that writes (hash)

  ARGV[1..2] see above
  ARGV[3] key
  ARGV[4] value
  ARGV[5] expiry of the value, ms since the epoch; '' for none, or with a version in ARGV[6] for the present expiry
  ARGV[6] the version that the key must have (8 bytes), 'none' when it must have no value, or '' for any
  ARGV[7] maximum bytes of the tenant's store: keys, values, and 8 bytes for each version
  ARGV[8] keys that the tenant may store
  ARGV[9] maximum number of expired keys to drop before the write
  ARGV[10] how long the reply is kept, ms
  ARGV[11] epoch of the attempt that writes, or '' for none
  ARGV[12] see above

  Returns {1, version (8 bytes)} written
          {0} the key has another version
          {-1, bytes, keys} the store, which has this size, has no room
          {-2, quota, limit, used} the quota has no room
          {-3} the attempt is over
]]
--- @include "../invocations/attempts.lua"

local known = redis.call('GET', KEYS[6])
if known then
  return {1, known}
end
if not isCurrent(KEYS[9], ARGV[11]) then
  return {-3}
end

local now = tonumber(ARGV[2])
local key, value, expiresAt, expected = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local swept = sweep(now, tonumber(ARGV[9]))
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

--- @script "read"
--[[
  Reads an unexpired value.

  KEYS[1] values (hash)
  KEYS[2] expiries (sorted set)

  ARGV[1] now, ms
  ARGV[2] key
  ARGV[3] 1: return the value; 0: only test for it

  Returns {1, version (8 bytes) and value}, {1} for the test, or {0} without a value.
]]
local expiry = redis.call('ZSCORE', KEYS[2], ARGV[2])
if expiry and tonumber(expiry) <= tonumber(ARGV[1]) then
  return {0}
end
if ARGV[3] == '0' then
  return {redis.call('HEXISTS', KEYS[1], ARGV[2])}
end
local stored = redis.call('HGET', KEYS[1], ARGV[2])
if not stored then
  return {0}
end
return {1, stored}

--- @script "delete"
--[[
  Deletes a value. When a call that has deleted a value is sent again, it only returns the first reply.

  KEYS[1..5] see above
  KEYS[6] reply to this call (string)
  KEYS[7] record of the invocation that deletes (hash)

  ARGV[1..2] see above
  ARGV[3] key
  ARGV[4] how long the reply is kept, ms
  ARGV[5] epoch of the attempt that deletes, or '' for none
  ARGV[6] see above

  Returns 1 when there was an unexpired value, else 0; -1 when the attempt is over.
]]
--- @include "../store/even-when-full.lua"
--- @include "../invocations/attempts.lua"

local now = tonumber(ARGV[2])
if redis.call('EXISTS', KEYS[6]) == 1 then
  return 1
end
if not isCurrent(KEYS[7], ARGV[5]) then
  return -1
end
local expiry = redis.call('ZSCORE', expiries, ARGV[3])
local there = remove(ARGV[3])
if expiry then
  schedule()
end
if not there or (expiry and tonumber(expiry) <= now) then
  return 0
end
redis.call('SET', KEYS[6], '1', 'PX', ARGV[4])
return 1

--- @script "list"
--[[
  Lists the unexpired keys of a range in byte order.

  KEYS[1] names (sorted set)
  KEYS[2] expiries (sorted set)

  ARGV[1] now, ms
  ARGV[2] lower bound in the syntax of ZRANGEBYLEX
  ARGV[3] upper bound
  ARGV[4] how many keys are wanted
  ARGV[5] maximum keys to read

  Returns {1 when the range may have more keys, else 0; the last key read or ''; key...}.
]]
local looked = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[5])
local wanted, now = tonumber(ARGV[4]), tonumber(ARGV[1])
local someExpire = redis.call('EXISTS', KEYS[2]) == 1
local found = {#looked == tonumber(ARGV[5]) and 1 or 0, ''}
for _, key in ipairs(looked) do
  found[2] = key
  local expiry = someExpire and redis.call('ZSCORE', KEYS[2], key)
  if not expiry or tonumber(expiry) > now then
    found[#found + 1] = key
    if #found == wanted + 2 then
      break
    end
  end
end
return found

--- @script "sweep"
--[[
  Drops expired keys of a tenant.

  KEYS[1..5] see above

  ARGV[1..2] see above
  ARGV[3] maximum number of keys to drop
  ARGV[4] see above

  Returns the number of dropped keys.
]]
--- @include "../store/even-when-full.lua"

local now = tonumber(ARGV[2])
local swept = sweep(now, tonumber(ARGV[3]))
schedule()
return swept
