--[[
  Removes an alias with its history.

  KEYS[1] function (hash), see include/alias.lua

  ARGV[1] alias
  ARGV[2] channel of changes
  ARGV[3] <tenant>/<name>

  Returns 1 removed, 0 there is no such alias.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/alias.lua"
redis.call('DEL', historyOf(KEYS[1], ARGV[1]))
local removed = redis.call('HDEL', KEYS[1], 'alias:' .. ARGV[1])
redis.call('PUBLISH', ARGV[2], ARGV[3])
return removed
