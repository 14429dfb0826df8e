--[[
  Renews the lease of a restore, and sets the mark when the restore begins to change the platform. The mark stays when the restore dies. No
  supervisor can then claim a machine until another restore has ended well.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  KEYS[2] the mark: id of the last restore that began to change the platform (string)
  ARGV[1] id of the restore
  ARGV[2] how long the lease holds, ms
  ARGV[3] '1': set the mark

  Returns 1 when the lease is renewed, 0 when the restore has lost it. A restore whose mark is still set gets its lease back after it has run out,
  unless another restore holds the lease: no machine has started meanwhile, and no other restore has changed anything.
]]
--- @include "../../store/scripts/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] and (holder or redis.call('GET', KEYS[2]) ~= ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if ARGV[3] == '1' then
  redis.call('SET', KEYS[2], ARGV[1])
end
return 1
