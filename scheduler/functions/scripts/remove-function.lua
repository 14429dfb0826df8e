--[[
  Removes a function with all its versions, and the components that no other version uses.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash)
  KEYS[3, 5, …] components of its versions (strings)
  KEYS[4, 6, …] their users (sets)

  ARGV[1] name
  ARGV[2…] for each of those components, the version's name among the users

  Returns 1 removed, 0 there is none, -1 it has other versions than those named (another deploy came between): read them again.
]]
local fields = redis.call('HLEN', KEYS[2])
if fields == 0 then
  return 0
end
if fields ~= #ARGV then
  return -1
end
redis.call('DEL', KEYS[2])
redis.call('SREM', KEYS[1], ARGV[1])
for i = 2, #ARGV do
  local component, users = KEYS[2 * i - 1], KEYS[2 * i]
  redis.call('SREM', users, ARGV[i])
  if redis.call('SCARD', users) == 0 then
    redis.call('DEL', component)
  end
end
return 1
