--[[
  Registers a runtime, or updates the description of one that has not been declared dead. The runtime's lease begins anew. Adjusts the platform's
  capacity to what the runtime offers now, and admits the invocations that fit.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  ARGV[1] runtime id
  ARGV[2] how long the lease holds, ms
  ARGV[3] load as JSON text
  ARGV[4] its description, as JSON text
  ARGV[5] prefix of every key
  ARGV[6] now, ms
  ARGV[7] 'new' or 'update'

  Returns 1; 0 for an update of a runtime that is not registered (any more).
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../admission/scripts/include/admission.lua"
if ARGV[7] == 'update' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
local a = openAdmission(ARGV[5], ARGV[6])
countRuntime(a, ARGV[1], ARGV[4])
admit(a)
closeAdmission(a)
return 1
