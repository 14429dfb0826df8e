--[[
  Records an administrative act. A repeated call only returns the reply.

  KEYS[1] reply to this call (string)
  KEYS[2…5] see include/record-act.lua

  ARGV[1] how long the reply is kept, ms
  ARGV[2…] the act, see include/record-act.lua

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/record-act.lua"

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
  record_act(2, { unpack(ARGV, 2) })
end
return 1
