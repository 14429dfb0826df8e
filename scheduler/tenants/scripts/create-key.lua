--[[
  Stores a key of a tenant (its hash, never the key) and records the act. A repeated call only returns the reply.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] the tenant's record (hash)
  KEYS[3] record of the key (hash)
  KEYS[4…7] see include/record-act.lua

  ARGV[1..3] see include/room.lua
  ARGV[4] id
  ARGV[5] sha256
  ARGV[6] expiry of the record, ms since the epoch; '' never
  ARGV[7] fields and values of the record, a JSON list
  ARGV[8…] the act, see include/record-act.lua

  Returns 1 stored, 0 there is no such tenant, -1 the tenant has as many keys as it may.
]]
--- @include "./include/room.lua"
--- @include "./include/record-act.lua"

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
redis.call('HSET', KEYS[3], unpack(cjson.decode(ARGV[7])))
if ARGV[6] ~= '' then
  redis.call('PEXPIREAT', KEYS[3], ARGV[6])
end
record_act(4, { unpack(ARGV, 8) })
return 1
