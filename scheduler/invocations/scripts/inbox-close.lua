--[[
  Ends the client's side of an inbox. The inferlet still gets the waiting messages.

  KEYS[1] record (hash)
  ARGV[1] inbox channel

  Returns 1, or 0 when there is no such record.
]]
--- @include "../../store/scripts/even-when-full.lua"
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'inboxClosed', 1)
redis.call('PUBLISH', ARGV[1], 'closed')
return 1
