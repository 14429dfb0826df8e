--[[
  Stores the bytes of a tenant's indexes (a sum), unless the stored sum is at least as late. It is if it comes from the same run of the index host
  and has no smaller number, or if it comes from the run after that. Records of earlier releases name no run; any sum replaces them.

  KEYS[1] the sum (hash)

  ARGV[1] bytes
  ARGV[2] id of the index host's run
  ARGV[3] number of the sum among those of the run
]]
--- @include "../../store/scripts/even-when-full.lua"

local life, sequence, before = unpack(redis.call('HMGET', KEYS[1], 'life', 'sequence', 'before'))
if ARGV[2] == before or (ARGV[2] == life and tonumber(ARGV[3]) <= tonumber(sequence)) then
  return 1
end
if ARGV[2] ~= life then
  redis.call('HSET', KEYS[1], 'before', life or '')
end
redis.call('HSET', KEYS[1], 'bytes', ARGV[1], 'life', ARGV[2], 'sequence', ARGV[3])
return 1
