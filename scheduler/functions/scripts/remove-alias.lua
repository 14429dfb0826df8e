--[[
  Removes an alias with its history.

  KEYS[1] function (hash), see include/alias.lua
  KEYS[2] the reply to this call, see ../../store/scripts/once.lua

  ARGV[1] alias
  ARGV[2] channel of changes
  ARGV[3] <tenant>/<name>

  Returns 1 removed, 0 there is no such alias.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../store/scripts/once.lua"
--- @include "./include/alias.lua"
local answered = answeredBefore(KEYS[2])
if answered then
  return answered
end
redis.call('DEL', historyOf(KEYS[1], ARGV[1]))
local removed = redis.call('HDEL', KEYS[1], 'alias:' .. ARGV[1])
redis.call('PUBLISH', ARGV[2], ARGV[3])
return answerOnce(KEYS[2], removed)
