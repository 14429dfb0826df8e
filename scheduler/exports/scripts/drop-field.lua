--[[
  Removes a field of a tenant's durable names, if it still has the given text.

  KEYS[1] the tenant's durable names (hash)

  ARGV[1] field
  ARGV[2] the text

  Returns 1 when the field was removed, else 0.
]]
--- @include "../../store/scripts/even-when-full.lua"

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
