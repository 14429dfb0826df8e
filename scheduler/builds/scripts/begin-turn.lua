--[[
  Marks the beginning of a build, so that later requests queue after it.

  KEYS[1] turns (hash), see take-turn.lua

  ARGV[1] id

  Returns 1, or 0 when the requester no longer waits for that build.
]]
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known then
  return 0
end
local turn = tonumber(string.match(known, '^%S+ (%d+)'))
if turn > tonumber(redis.call('HGET', KEYS[1], 'time') or 0) then
  redis.call('HSET', KEYS[1], 'time', turn)
end
return 1
