--[[
  Deletes a value. When a call that has deleted a value is sent again, it only returns the first reply.

  KEYS[1..5] see include/stored.lua
  KEYS[6] reply to this call (string)
  KEYS[7] record of the invocation that deletes (hash)

  ARGV[1..2] see include/stored.lua
  ARGV[3] key
  ARGV[4] how long the reply is kept, ms
  ARGV[5] epoch of the attempt that deletes, or '' for none
  ARGV[6] see include/stored.lua

  Returns 1 when there was an unexpired value, else 0; -1 when the attempt is over.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/stored.lua"
--- @include "../../invocations/scripts/include/attempt.lua"

if redis.call('EXISTS', KEYS[6]) == 1 then
  return 1
end
if not isCurrent(KEYS[7], ARGV[5]) then
  return -1
end
local expiry = redis.call('ZSCORE', expiries, ARGV[3])
local there = remove(ARGV[3])
if expiry then
  schedule()
end
if not there or (expiry and tonumber(expiry) <= now) then
  return 0
end
redis.call('SET', KEYS[6], '1', 'PX', ARGV[4])
return 1
