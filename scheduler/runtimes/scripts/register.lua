--[[
  Registers a runtime, or what it says of itself now; its lease begins anew. The platform's capacity follows, and whoever fits is admitted.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  ARGV[1] runtime id
  ARGV[2] how long the lease holds, ms
  ARGV[3] load as JSON text
  ARGV[4] what it says of itself, as JSON text
  ARGV[5] what every key begins with
  ARGV[6] now, ms

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../admission/scripts/include/admission.lua"
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
local a = refreshCapacity(openAdmission(ARGV[5], ARGV[6]))
admit(a)
closeAdmission(a)
return 1
