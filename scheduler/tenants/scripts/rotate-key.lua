--[[
  Replaces a key by one with the same name, scopes and expiry, and records the act. The old key works until the end of a grace period.
  A repeated call only returns the reply.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] record of the old key (hash)
  KEYS[3] record of the new key (hash)
  KEYS[4…7] see include/record-act.lua

  ARGV[1..3] see include/room.lua
  ARGV[4] id of the old key
  ARGV[5] id of the new key
  ARGV[6] sha256 of the new key
  ARGV[7] creation time of the new key, ISO 8601
  ARGV[8] end of the grace period, ms since the epoch
  ARGV[9] how long the record of an expired key is kept, ms
  ARGV[10…] the act, see include/record-act.lua

  Returns 1 rotated, 0 there is no such key or it has expired, -1 the tenant has as many keys as it may.
]]
--- @include "./include/room.lua"
--- @include "./include/record-act.lua"

if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0 or not works(KEYS[2]) then
  return 0
end
if not has_room() then
  return -1
end
redis.call('HSET', KEYS[1], ARGV[5], ARGV[6])
for _, field in ipairs({ 'tenant', 'name', 'scopes', 'expiresAt' }) do
  local value = redis.call('HGET', KEYS[2], field)
  if value then
    redis.call('HSET', KEYS[3], field, value)
  end
end
redis.call('HSET', KEYS[3], 'createdAt', ARGV[7])
local expiry = tonumber(redis.call('HGET', KEYS[2], 'expiresAt') or '') or math.huge
if expiry < math.huge then
  redis.call('PEXPIREAT', KEYS[3], string.format('%.0f', expiry + tonumber(ARGV[9])))
end
local grace = math.min(expiry, tonumber(ARGV[8]))
redis.call('HSET', KEYS[2], 'expiresAt', string.format('%.0f', grace))
redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', grace + tonumber(ARGV[9])))
record_act(4, { unpack(ARGV, 10) })
return 1
