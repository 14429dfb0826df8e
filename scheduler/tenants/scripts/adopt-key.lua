--[[
  Gives a name and other scopes to a key that was created before keys had names, adds it to its tenant's keys, and records the act. A repeated
  call finds the name and changes nothing.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] record of the key (hash)
  KEYS[3…6] see include/record-act.lua

  ARGV[1] id
  ARGV[2] sha256
  ARGV[3] name
  ARGV[4] scopes
  ARGV[5…] the act, see include/record-act.lua

  Returns 1 adopted, 0 the key has a name or does not exist.
]]
--- @include "./include/record-act.lua"

if redis.call('EXISTS', KEYS[2]) == 0 or redis.call('HEXISTS', KEYS[2], 'name') == 1 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], 'name', ARGV[3], 'scopes', ARGV[4])
record_act(3, { unpack(ARGV, 5) })
return 1
