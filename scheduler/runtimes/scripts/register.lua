--[[
  Registers a runtime, or updates its description; its lease begins anew. Changes the platform's capacity by what it offers now,
  and admits what fits.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  ARGV[1] runtime id
  ARGV[2] how long the lease holds, ms
  ARGV[3] load as JSON text
  ARGV[4] its description, as JSON text
  ARGV[5] prefix of every key
  ARGV[6] now, ms

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../admission/scripts/include/admission.lua"
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
local a = openAdmission(ARGV[5], ARGV[6])
countRuntime(a, ARGV[1], ARGV[4])
admit(a)
closeAdmission(a)
return 1
