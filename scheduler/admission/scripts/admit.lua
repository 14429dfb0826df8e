--[[
  Admits every invocation that may start. Call it after a change that no other script handles: a report of free memory, a limit, the time.

  KEYS[1] admission's state (hash), see include/admission.lua
  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] tenant whose limits have changed; '*' for all tenants; '' for none

  Returns {number of admitted invocations, 1 when tenants are left to settle}. When the number equals `MAX_STARTS`, a further call may admit
  more.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/admission.lua"

local a = openAdmission(ARGV[1], ARGV[2])
if a.leaving then
  settleSome(a)
else
  -- Without `leaving`, a process of an earlier release has written the capacity.
  recount(a)
end
if ARGV[3] == '*' then
  settleAll(a)
elseif ARGV[3] ~= '' then
  settle(a, ARGV[3])
end
admit(a)
closeAdmission(a)
return { a.started, a.settling and 1 or 0 }
