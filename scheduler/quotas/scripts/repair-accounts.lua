--[[
  Compares the accounts of some tenants and their holders (include/account.lua) with the values stored in Redis. The script that writes a value
  also updates its account. A difference therefore dates from before there were accounts, or from a restore, which brings back no account of
  bytes in Redis; or it is a fault of the platform. The repair:
    - drops a holder whose invocation has ended or is gone, whose log is gone, or whose bytes are negative;
    - drops an invocation that has ended or is gone from those with latency targets;
    - adds a holder whose content expires and that is missing from `redis-ends` to this set, as due now;
    - sets a sum that does not equal the bytes of its parts.
  Each call checks some of the tenants. It reads the bytes of all holders of such a tenant. If they are many, it looks up the invocations, logs and
  ends of only a part of them; each scan of all tenants takes another part.

  KEYS[1] state of the repairs (hash): `at` time of the last repair, `cursor` position in the scan of tenants, `passed` number of tenants after
          this position that are done, `round` number of scans that have ended
  KEYS[2] names of all tenants (set)

  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] least time between two repairs, ms

  Returns the number of corrected accounts, or -1 when the last repair was less than ARGV[3] ago.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/storage.lua"

-- A call checks at most TENANTS_LOOKED_AT tenants, and begins no further tenant once it has read HOLDERS_READ holders. Of each tenant, it looks up
-- the invocation, log or end of about HOLDERS_LOOKED_AT holders. With the default retention, a busy tenant has 10,000 holders, one for each minute
-- of the next week: reading them costs little, but a command for each would block Redis for many ms.
local TENANTS_LOOKED_AT, HOLDERS_READ, HOLDERS_LOOKED_AT = 8, 20000, 250

local prefix, now = ARGV[1], tonumber(ARGV[2])
local at, cursor, passed, round = unpack(redis.call('HMGET', KEYS[1], 'at', 'cursor', 'passed', 'round'))
at, cursor, passed, round = tonumber(at or 0), cursor or '0', tonumber(passed or 0), tonumber(round or 0)
if at <= now and now - at < tonumber(ARGV[3]) then
  return -1
end

-- True unless the holder's invocation has ended or is gone, or its log is gone. Always true for other kinds of holders.
local function isHeld(tenant, kind, name)
  if kind == 'i' then
    local status = redis.call('HGET', prefix .. ':invocation:' .. name, 'status')
    return status == 'queued' or status == 'running' or status == 'waiting'
  end
  return kind ~= 'l' or redis.call('EXISTS', prefix .. ':logs:' .. tenant .. ':' .. name) == 1
end

local function bytesIn(key)
  return tonumber(redis.call('HGET', key, 'bytes') or 0)
end

-- Corrects the account; returns true when anything was wrong.
local function putRight(tenant)
  local account = prefix .. ':account:' .. tenant
  -- Called only to release the bytes of expired content.
  settledBytes(account, now)
  local wrong, sum = false, 0
  local fields = redis.call('HGETALL', accountKey(account))
  local parts = math.max(1, math.ceil(#fields / 2 / HOLDERS_LOOKED_AT))
  for i = 1, #fields, 2 do
    local holder, bytes = fields[i], tonumber(fields[i + 1])
    local isLookedAt = (i - 1) / 2 % parts == round % parts
    local kind, name = string.match(holder, '^(%a):(.*)$')
    if holder == 'bytes' then
      bytes = 0
    elseif bytes < 0 or (isLookedAt and kind and not isHeld(tenant, kind, name)) then
      redis.call('HDEL', accountKey(account), holder)
      wrong, bytes = true, 0
    elseif isLookedAt and kind ~= 'i' and not redis.call('ZSCORE', account .. ':redis-ends', holder) then
      endHolder(account, holder, now)
      wrong = true
    end
    sum = sum + bytes
  end
  for _, id in ipairs(redis.call('SMEMBERS', account .. ':latency')) do
    if not isHeld(tenant, 'i', id) then
      redis.call('SREM', account .. ':latency', id)
      wrong = true
    end
  end
  sum = sum + bytesIn(prefix .. ':store:' .. tenant .. ':usage') + bytesIn(prefix .. ':file-usage:' .. tenant)
    + bytesIn(prefix .. ':lines:' .. tenant .. ':usage') + bytesIn(account .. ':components')
  if sum ~= bytesIn(accountKey(account)) then
    redis.call('HSET', accountKey(account), 'bytes', sum)
    wrong = true
  end
  if sum == 0 and redis.call('HLEN', accountKey(account)) == 1 then
    redis.call('DEL', accountKey(account))
  end
  return wrong
end

-- A scan of a small set returns all of it, whatever its COUNT.
local nextCursor, names = unpack(redis.call('SSCAN', KEYS[2], cursor, 'COUNT', TENANTS_LOOKED_AT))
local corrected, holders, last = 0, 0, math.min(#names, passed + TENANTS_LOOKED_AT)
while passed < last and holders < HOLDERS_READ do
  local tenant = names[passed + 1]
  holders = holders + redis.call('HLEN', accountKey(prefix .. ':account:' .. tenant))
  corrected = corrected + (putRight(tenant) and 1 or 0)
  passed = passed + 1
end
if passed >= #names then
  cursor, passed, round = nextCursor, 0, round + (nextCursor == '0' and 1 or 0)
end
redis.call('HSET', KEYS[1], 'at', now, 'cursor', cursor, 'passed', passed, 'round', round)
return corrected
