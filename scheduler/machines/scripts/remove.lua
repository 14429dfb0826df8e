--[[
  Removes a machine for good: its supervisor, and every other one with its certificate, can claim no name.

  KEYS[1] names of registered machines (set)
  KEYS[2] description of the machine, as JSON text (string with a TTL)
  KEYS[3] the lease (string with a TTL)
  KEYS[4] channel of changes
  KEYS[5] fingerprints of the certificates of removed machines (set)
  ARGV[1] name

  Returns 1 when the machine is removed, 0 when no machine has the name.
]]
--- @include "../../store/scripts/even-when-full.lua"
local known = redis.call('GET', KEYS[2])
if not known then
  return 0
end
local certificate = cjson.decode(known).certificate
if certificate then
  redis.call('SADD', KEYS[5], certificate)
end
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[4], ARGV[1])
return 1
