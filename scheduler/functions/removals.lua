-- The removal of functions and versions.

--- @script "remove-function"
--[[
  Removes a function with all its aliases, so that no new invocation can run it. Its versions stay among the removed ones until their
  invocations have ended (`drop-version`). A repeated call for a draining function may add the request to cancel
  the invocations.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash), see functions.lua
  KEYS[3] removed versions of the function (hash)
  KEYS[4] functions with removed versions, and removed versions whose invocations are to be cancelled (hash)
  KEYS[5] deployed functions (set)
  KEYS[6] the reply to this call, see ../store/store.lua
  KEYS[7…10] see ../tenants/tenants.lua

  ARGV[1] name
  ARGV[2] <tenant>/<name>
  ARGV[3] `drain`; or `now` to cancel the invocations of the removed versions
  ARGV[4] channel of changes
  ARGV[5…] the act, see ../tenants/tenants.lua; not recorded when an earlier call had the same effect

  Returns 1 removed or draining, 0 there is no such function.
]]
--- @include "../store/even-when-full.lua"
--- @include "../store/store.lua"
--- @include "../tenants/tenants.lua"
--- @include "./functions.lua"
local functions, fn, removed, removals, deployed = unpack(KEYS)
local answered = answeredBefore(KEYS[6])
if answered then
  return answered
end
local fields = redis.call('HGETALL', fn)
-- Above 0 when this call changes something. Only then the audit log gets an entry.
local changes = #fields
for i = 1, #fields, 2 do
  local kind, name = string.match(fields[i], '^(%a+):(.*)$')
  if kind == 'version' then
    redis.call('HSET', removed, name, fields[i + 1])
  elseif kind == 'alias' then
    redis.call('DEL', historyOf(fn, name))
  end
end
redis.call('DEL', fn)
redis.call('SREM', functions, ARGV[1])
redis.call('SREM', deployed, ARGV[2])
if redis.call('EXISTS', removed) == 0 then
  return 0
end
redis.call('HSET', removals, ARGV[2], 'drain')
if ARGV[3] == 'now' then
  for _, version in ipairs(redis.call('HKEYS', removed)) do
    changes = changes + redis.call('HSET', removals, ARGV[2] .. '@' .. version, 'now')
  end
end
if changes > 0 then
  record_act(7, { unpack(ARGV, 5) })
end
redis.call('PUBLISH', ARGV[4], ARGV[2])
return answerOnce(KEYS[6], 1)

--- @script "remove-version"
--[[
  Removes a version that no alias serves, in the same way as `remove-function`.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash), see functions.lua
  KEYS[3] removed versions of the function (hash)
  KEYS[4] functions with removed versions, and removed versions whose invocations are to be cancelled (hash)
  KEYS[5] deployed functions (set)
  KEYS[6] the reply to this call, see ../store/store.lua
  KEYS[7…10] see ../tenants/tenants.lua

  ARGV[1] name
  ARGV[2] <tenant>/<name>
  ARGV[3] `drain`; or `now` to cancel the version's invocations
  ARGV[4] version
  ARGV[5…] the act, see ../tenants/tenants.lua; not recorded when an earlier call had the same effect

  Returns {1} removed or draining; {0} there is no such version; {-1, alias…} these aliases serve it.
]]
--- @include "../store/even-when-full.lua"
--- @include "../store/store.lua"
--- @include "../tenants/tenants.lua"
--- @include "./functions.lua"
local functions, fn, removed, removals, deployed = unpack(KEYS)
local answered = answeredBefore(KEYS[6])
if answered then
  return answered
end
local version = ARGV[4]
local text = redis.call('HGET', fn, 'version:' .. version)
-- Above 0 when this call changes something. Only then the audit log gets an entry.
local changes = text and 1 or 0
if text then
  local serving = aliasesOf(fn, version)
  if #serving > 0 then
    return {-1, unpack(serving)}
  end
  redis.call('HSET', removed, version, text)
  redis.call('HDEL', fn, 'version:' .. version)
  if countOf(fn, 'version:') == 0 then
    redis.call('DEL', fn)
    redis.call('SREM', functions, ARGV[1])
    redis.call('SREM', deployed, ARGV[2])
  end
elseif redis.call('HEXISTS', removed, version) == 0 then
  return {0}
end
redis.call('HSET', removals, ARGV[2], 'drain')
if ARGV[3] == 'now' then
  changes = changes + redis.call('HSET', removals, ARGV[2] .. '@' .. version, 'now')
end
if changes > 0 then
  record_act(7, { unpack(ARGV, 5) })
end
return answerOnce(KEYS[6], {1})

--- @script "begin-removal-round"
--[[
  Lets one process in each interval cancel the invocations of a removed function again.

  KEYS[1] mark of the last round (string)
  ARGV[1] interval, ms

  Returns 1 when the caller is the first in this interval and cancels, else 0.
]]
--- @include "../store/even-when-full.lua"
return redis.call('SET', KEYS[1], '1', 'PX', ARGV[1], 'NX') and 1 or 0

--- @script "drop-version"
--[[
  Deletes a removed version if all its invocations have ended. Deletes its component, too, if no other version uses the component.

  KEYS[1] removed versions of the function (hash)
  KEYS[2] functions with removed versions, and removed versions whose invocations are to be cancelled (hash)
  KEYS[3] invocations of the version that have not ended (set)
  KEYS[4] component (string)
  KEYS[5] users of the component (set)
  KEYS[6] the version's conduct: losses of sandboxes in which it computed (hash)
  KEYS[7] peak use learned from the version's runs (hash)
  KEYS[8] the engine of a script (string), and
  KEYS[9] its users (set); the same as KEYS[4] and KEYS[5] for a component

  ARGV[1] version
  ARGV[2] <tenant>/<name>
  ARGV[3] this version's entry among the users of the component
  ARGV[4] prefix of the keys of the tenant's quotas
  ARGV[5] <name>@<version>

  Returns 1 deleted, 0 it still has invocations, -1 it is not there: deleted before, or deployed again.
]]
--- @include "../store/even-when-full.lua"
--- @include "../quotas/account.lua"
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
redis.call('SREM', KEYS[9], ARGV[3])
if redis.call('SCARD', KEYS[9]) == 0 then
  redis.call('DEL', KEYS[8])
end
if redis.call('EXISTS', removed) == 0 then
  redis.call('HDEL', removals, ARGV[2])
end
return 1
