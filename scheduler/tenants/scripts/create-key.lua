--[[
  Stores a key of a tenant: its hash, never the key. Of a call that is sent twice the second only answers.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] the tenant's record (hash)
  KEYS[3] record of the key (hash)

  ARGV[1..3] see include/room.lua
  ARGV[4] id
  ARGV[5] sha256
  ARGV[6] when the record is forgotten, ms since the epoch; '' never
  ARGV[7…] fields and values of the record

  Returns 1 stored, 0 there is no such tenant, -1 it has as many keys as it may.
]]
--- @include "./include/room.lua"

if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  return 0
end
if not has_room() then
  return -1
end
redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
redis.call('HSET', KEYS[3], unpack(ARGV, 7))
if ARGV[6] ~= '' then
  redis.call('PEXPIREAT', KEYS[3], ARGV[6])
end
return 1
