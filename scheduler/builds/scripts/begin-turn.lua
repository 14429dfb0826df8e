--[[
  Records that a build has begun. Later requests then get at least the turn of this build. Later requests of the same tenant get a later turn
  than this build, even after the build has ended, until its deadline.

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
