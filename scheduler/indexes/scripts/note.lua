--[[
  Stores the bytes of a tenant's indexes, unless a later sum is known.

  KEYS[1] the sum (hash)

  ARGV[1] bytes
  ARGV[2] when the index host knew them, microseconds
]]
--- @include "../../store/scripts/even-when-full.lua"

if tonumber(redis.call('HGET', KEYS[1], 'at') or 0) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'bytes', ARGV[1], 'at', ARGV[2])
end
return 1
