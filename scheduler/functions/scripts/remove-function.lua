--[[
  Removes a function with all its aliases, so that no new invocation can run it. Its versions stay among the removed ones until their
  invocations have ended (drop-version.lua). A repeated call for a draining function may add the request to cancel
  the invocations.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash), see include/alias.lua
  KEYS[3] removed versions of the function (hash)
  KEYS[4] functions with removed versions, and removed versions whose invocations are to be cancelled (hash)
  KEYS[5] deployed functions (set)
  KEYS[6] the reply to this call, see ../../store/scripts/once.lua
  KEYS[7…10] see ../../tenants/scripts/include/record-act.lua

  ARGV[1] name
  ARGV[2] <tenant>/<name>
  ARGV[3] `drain`; or `now` to cancel the invocations of the removed versions
  ARGV[4] channel of changes
  ARGV[5…] the act, see ../../tenants/scripts/include/record-act.lua; not recorded when an earlier call had the same effect

  Returns 1 removed or draining, 0 there is no such function.
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
