--[[
  Forgets a name and its copy in the shared directory, if both are still the given ones.

  KEYS[1] the tenant's names of a model (hash)
  KEYS[2] the tenant's durable names (hash)
  KEYS[3] the reply to this call, see ../../store/scripts/once.lua

  ARGV[1] kind and name
  ARGV[2] the owner
  ARGV[3] field of the copy
  ARGV[4] the copy (JSON)
  ARGV[5] field of the removal: a note that the owner's host must forget the name when it is back; empty when no note is needed
  ARGV[6] the removal (JSON)

  Returns 1 when the name and its copy were removed, else 0.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../store/scripts/once.lua"

local answered = answeredBefore(KEYS[3])
if answered then return answered end
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] or redis.call('HGET', KEYS[2], ARGV[3]) ~= ARGV[4] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[3])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[2], ARGV[5], ARGV[6]) end
return answerOnce(KEYS[3], 1)
