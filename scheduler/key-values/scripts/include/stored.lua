--- @include "../../../quotas/scripts/include/account.lua"

-- A tenant's store. KEYS[1] values (hash), KEYS[2] names (sorted set), KEYS[3] expiries (sorted set), KEYS[4] usage (hash), KEYS[5] sweeps
-- (sorted set); ARGV[1] tenant, ARGV[2] now, ms; the last argument is the prefix of the keys of the tenant's quotas.
local values, names, expiries, usage, sweeps = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tenant, now, account = ARGV[1], tonumber(ARGV[2]), ARGV[#ARGV]

-- Drops a key with its expiry and bytes; returns true when the key existed. Changes the count of bytes first: when this is the script's first
-- write, a full Redis refuses it, and the script ends without effect. A full Redis would accept an HDEL, and then also writes that take memory
-- (`store/scripts/even-when-full.lua`).
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

-- Drops up to `count` expired keys; returns their number.
local function sweep(count)
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
