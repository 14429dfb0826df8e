--[[
  Takes the lease of restores. While the lease holds, no supervisor can claim a machine. Running machines go on: the restore has changed nothing
  yet, and is refused when it finds running machines.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  ARGV[1] id of the restore
  ARGV[2] how long the lease holds, ms

  Returns false when this restore has the lease, else the id of the restore that has it.
]]
--- @include "../../store/scripts/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
