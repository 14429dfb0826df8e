--[[
  Notes the owner of a name. An owner that is noted already stays, unless it is ARGV[3]. Idempotent.

  KEYS[1] the tenant's names of a model (hash)

  ARGV[1] kind and name
  ARGV[2] the owner
  ARGV[3] the owner that may be replaced; empty for none

  Returns the other owner, which stays noted; nothing when ARGV[2] is noted now.
]]

local noted = redis.call('HGET', KEYS[1], ARGV[1])
if noted and noted ~= ARGV[2] and noted ~= ARGV[3] then return noted end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return false
