--[[
  Marks the beginning of a build, so that later requests get its turn or a later one. Requests of its own tenant get a later turn, even after
  the build has ended; this holds until the time up to which the requester would have waited for the build.

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
