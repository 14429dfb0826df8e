--[[
  Removes a machine whose supervisor stops, unless another supervisor has taken its name.

  KEYS[1] names of registered machines (set)
  KEYS[2] description of the machine, as JSON text (string with a TTL)
  KEYS[3] the lease (string with a TTL)
  KEYS[4] channel of changes
  KEYS[5] fingerprints of the certificates of removed machines (set)
  KEYS[6] name of the machine that has this machine's certificate (string with a TTL)
  KEYS[7..9] not used
  KEYS[10] what the supervisor last saw of its processes (string with a TTL)
  ARGV[1] name
  ARGV[2] id of this run of the supervisor

  Returns 1 when the machine is removed, 0 when another supervisor holds the name.
]]
--- @include "../../store/scripts/even-when-full.lua"
local known = redis.call('GET', KEYS[2])
if known and cjson.decode(known).life ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[6], KEYS[10])
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[4], ARGV[1])
return 1
