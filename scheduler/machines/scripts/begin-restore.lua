--[[
  Marks a Redis as one in which a restore replaces the platform, or renews the lease of the mark. The mark stays when the restore dies: no
  supervisor then claims a machine before another restore has ended.

  KEYS[1] the lease of the restore: its holder (string with a TTL)
  KEYS[2] the mark: the holder of the last restore that began (string)
  ARGV[1] the holder
  ARGV[2] how long the lease holds, ms

  Returns {'held', its holder} when another restore runs, else {'begun', '1' when an earlier restore has left its mark, else '0'}.
]]
--- @include "../../store/scripts/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return { 'held', holder }
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local left = redis.call('GET', KEYS[2])
redis.call('SET', KEYS[2], ARGV[1])
return { 'begun', left and '1' or '0' }
