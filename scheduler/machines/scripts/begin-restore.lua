--[[
  Takes the lease of restores: no supervisor claims a machine while it holds. A running machine goes on, because the restore may yet be
  refused while machines run.

  KEYS[1] the lease: the restore that holds it (string with a TTL)
  ARGV[1] the restore
  ARGV[2] how long the lease holds, ms

  Returns false when this restore has the lease, else the restore that holds it.
]]
--- @include "../../store/scripts/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
