--[[
  Renews the lease of a runtime after the lease ran out or a full Redis refused the renewal, unless the runtime has been declared dead.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  ARGV[1] runtime id
  ARGV[2] how long the lease holds, ms
  ARGV[3] load as JSON text

  Returns 1 renewed, 0 the runtime is not registered (any more).
]]
--- @include "../../store/scripts/even-when-full.lua"
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 1
