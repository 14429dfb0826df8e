--[[
  Forgets the owner of a name, if the owner is still the given one.

  KEYS[1] the tenant's names of a model (hash)

  ARGV[1] kind and name
  ARGV[2] the owner

  Returns 1 when the owner was removed, else 0.
]]
--- @include "../../store/scripts/even-when-full.lua"

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
