--[[
  Marks the beginning of a build, so that later requests queue after it. Those of the same tenant do so even when the build has ended,
  until its requester would have waited for it at the longest.

  KEYS[1] turns (hash), see take-turn.lua

  ARGV[1] id

  Returns 1, or 0 when the requester no longer waits for that build.
]]
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known then
  return 0
end
local tenant, turn = string.match(known, '^(%S+) (%d+)')
if tonumber(turn) >= tonumber(redis.call('HGET', KEYS[1], 'time') or 0) then
  redis.call('HSET', KEYS[1], 'time', turn, 'began ' .. tenant, known)
end
return 1
