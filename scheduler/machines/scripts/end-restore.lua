--[[
  Ends the lease of a restore, which may have run out already. Removes the mark of this restore when the platform is complete. The lease and the
  mark of another restore stay.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  KEYS[2] the mark: id of the last restore that began to change the platform (string)
  ARGV[1] id of the restore
  ARGV[2] '1': the platform is complete (fully restored, or fully removed)

  Returns 0 when another restore holds the lease, else 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[2] == '1' and redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('DEL', KEYS[2])
end
return 1
