--[[
  Removes a version that no alias serves, in the same way as remove-function.lua.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash), see include/alias.lua
  KEYS[3] removed versions of the function (hash)
  KEYS[4] functions with removed versions, and removed versions whose invocations are to be cancelled (hash)
  KEYS[5] deployed functions (set)
  KEYS[6] the reply to this call, see ../../store/scripts/once.lua
  KEYS[7…10] see ../../tenants/scripts/include/record-act.lua

  ARGV[1] name
  ARGV[2] <tenant>/<name>
  ARGV[3] `drain`; or `now` to cancel the version's invocations
  ARGV[4] version
  ARGV[5…] the act, see ../../tenants/scripts/include/record-act.lua; not recorded when an earlier call had the same effect

  Returns {1} removed or draining; {0} there is no such version; {-1, alias…} these aliases serve it.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../store/scripts/once.lua"
--- @include "../../tenants/scripts/include/record-act.lua"
--- @include "./include/alias.lua"
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
