--[[
  Removes a component that nothing uses.

  KEYS[1] component (string)
  KEYS[2] users of the component (set)

  Returns 1 removed, 0 it is used or not there.
]]
if redis.call('SCARD', KEYS[2]) > 0 then
  return 0
end
return redis.call('DEL', KEYS[1])
