--[[
  Ends the drain of a GPU host or a machine, which then takes new invocations again.

  KEYS[1] drained hosts and machines (hash)
  KEYS[2] channel of changes
  KEYS[3] the reply to this call, see ../../store/scripts/once.lua
  ARGV[1] name of the host, or entry of the machine

  Returns 1 when it was drained, else 0.
]]
--- @include "../../store/scripts/once.lua"
local answered = answeredBefore(KEYS[3])
if answered then
  return answered
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('PUBLISH', KEYS[2], ARGV[1])
return answerOnce(KEYS[3], 1)
