--[[
  Compares the accounts of some tenants with the values stored in Redis. The script that writes a value also updates its account, so a
  difference dates from before there were accounts, or is a fault of the platform. The repair:
    - drops a holder whose invocation or log is gone, and an invocation with latency targets that has ended or is gone: a restore brings back
      these entries without their invocations;
    - lists a holder that ends by itself and is not listed for it;
    - sets a sum that does not equal its parts.
  Each call checks a part of the tenants.

  KEYS[1] `at` time of the last repair, `cursor` where the next one starts (hash)
  KEYS[2] names of all tenants (set)

  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] least time between two repairs, ms

  Returns the number of corrected accounts, or -1 when the last repair was less than ARGV[3] ago.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/storage.lua"

local TENANTS_LOOKED_AT = 8

local prefix, now = ARGV[1], tonumber(ARGV[2])
local at, cursor = unpack(redis.call('HMGET', KEYS[1], 'at', 'cursor'))
at = tonumber(at or 0)
if at <= now and now - at < tonumber(ARGV[3]) then
  return -1
end

-- True when the holder's invocation or log still exists.
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
  settledBytes(account, now)
  local wrong, sum = false, 0
  local fields = redis.call('HGETALL', accountKey(account))
  for i = 1, #fields, 2 do
    local holder, bytes = fields[i], tonumber(fields[i + 1])
    local kind, name = string.match(holder, '^(%a):(.*)$')
    if holder == 'bytes' then
      bytes = 0
    elseif bytes < 0 or (kind and not isHeld(tenant, kind, name)) then
      redis.call('HDEL', accountKey(account), holder)
      wrong, bytes = true, 0
    elseif kind ~= 'i' and not redis.call('ZSCORE', account .. ':redis-ends', holder) then
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

local corrected = 0
local nextCursor, names = unpack(redis.call('SSCAN', KEYS[2], cursor or '0', 'COUNT', TENANTS_LOOKED_AT))
for _, tenant in ipairs(names) do
  corrected = corrected + (putRight(tenant) and 1 or 0)
end
redis.call('HSET', KEYS[1], 'at', now, 'cursor', nextCursor)
return corrected
