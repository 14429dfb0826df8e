--[[
  Deletes a removed version if all its invocations have ended. Deletes its component, too, if no other version uses the component.

  KEYS[1] removed versions of the function (hash)
  KEYS[2] functions with removed versions, and removed versions whose invocations are to be cancelled (hash)
  KEYS[3] invocations of the version that have not ended (set)
  KEYS[4] component (string)
  KEYS[5] users of the component (set)
  KEYS[6] the version's conduct: losses of sandboxes in which it computed (hash)
  KEYS[7] peak use learned from the version's runs (hash)

  ARGV[1] version
  ARGV[2] <tenant>/<name>
  ARGV[3] this version's entry among the users of the component
  ARGV[4] prefix of the keys of the tenant's quotas
  ARGV[5] <name>@<version>

  Returns 1 deleted, 0 it still has invocations, -1 it is not there: deleted before, or deployed again.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../quotas/scripts/include/storage.lua"
local removed, removals, unfinished, component, users, conduct, learned = unpack(KEYS)
if redis.call('HEXISTS', removed, ARGV[1]) == 0 then
  return -1
end
if redis.call('SCARD', unfinished) > 0 then
  return 0
end
redis.call('DEL', conduct, learned)
redis.call('HDEL', removed, ARGV[1])
redis.call('HDEL', removals, ARGV[2] .. '@' .. ARGV[1])
uncountComponent(ARGV[4], ARGV[5])
redis.call('SREM', users, ARGV[3])
if redis.call('SCARD', users) == 0 then
  redis.call('DEL', component)
end
if redis.call('EXISTS', removed) == 0 then
  redis.call('HDEL', removals, ARGV[2])
end
return 1
