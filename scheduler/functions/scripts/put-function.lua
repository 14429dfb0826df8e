--[[
  Stores a version of a function and serves it from now on. The component must be stored already; it is kept as long as a version uses it.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash)
  KEYS[3] component (string)
  KEYS[4] users of the component (set)

  ARGV[1] name
  ARGV[2] version
  ARGV[3] the version as JSON text
  ARGV[4] this version's name among the users

  Returns 1 new version, 0 the version existed, -1 the component is not stored.
]]
if redis.call('EXISTS', KEYS[3]) == 0 then
  return -1
end
redis.call('PERSIST', KEYS[3])
redis.call('SADD', KEYS[4], ARGV[4])
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], 'current', ARGV[2])
return redis.call('HSETNX', KEYS[2], 'version:' .. ARGV[2], ARGV[3])
