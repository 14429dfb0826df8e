--[[
  Removes a secret, but not its values: they stay while function versions refer to them. A repeated call only returns the reply.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] reply to this call (string)

  ARGV[1] name
  ARGV[2] how long the reply is kept, ms

  Returns 1 removed, 0 there is no such secret.
]]
--- @include "../../store/scripts/even-when-full.lua"

if redis.call('EXISTS', KEYS[2]) == 1 then
  return 1
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
