--[[
  Works the capacity out anew, and admits whoever may start.

  KEYS[1] admission's state (hash), see include/admission.lua
  ARGV[1] what every key begins with
  ARGV[2] now, ms
  ARGV[3] tenant whose limits have changed; '*' for any; '' for none

  Returns how many were admitted; more may be when that is as many as one script admits.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/admission.lua"

local a = refreshCapacity(openAdmission(ARGV[1], ARGV[2]))
local tenants = { ARGV[3] }
if ARGV[3] == '*' then
  tenants = redis.call('SMEMBERS', a.base .. 'tenants')
end
for _, tenant in ipairs(tenants) do
  if tenant ~= '' then
    settle(a, tenant)
  end
end
admit(a)
closeAdmission(a)
return a.started
