--[[
  Claims the name of a machine for a supervisor, or renews the claim. Refuses while another supervisor holds the name.

  KEYS[1] names of registered machines (set)
  KEYS[2] description of the machine, as JSON text (string with a TTL)
  KEYS[3] the lease: id of the run of the supervisor that holds it (string with a TTL)
  KEYS[4] channel of changes
  KEYS[5] fingerprints of the certificates of removed machines (set)
  KEYS[6] name of the machine that has the certificate ARGV[7] (string with a TTL)
  KEYS[7] machines that have joined with a token (hash, name to JSON text)
  KEYS[8] mark of a restore that changes the platform or broke off (string)
  KEYS[9] lease of the restore that runs (string with a TTL)
  ARGV[1] name
  ARGV[2] id of this run of the supervisor
  ARGV[3] how long the lease holds, ms
  ARGV[4] how long the description is kept without renewal, ms
  ARGV[5] description of the machine, as JSON text
  ARGV[6] '1': take the name even from a supervisor whose lease holds
  ARGV[7] fingerprint of the machine's certificate, or empty
  ARGV[8] roles of the machine, as JSON text

  Returns false when the name is claimed, else the reason:
    'removed'            an operator has removed the machine
    'owned NAME'         the machine NAME has the certificate
    'restoring HOLDER'   a restore keeps the machine from starting or going on
    'roles ROLES'        the machine's token allowed only ROLES
    {description, ms}    another supervisor holds the name: its machine as JSON text, and how long its lease still holds
]]
--- @include "../../store/scripts/even-when-full.lua"
if redis.call('SISMEMBER', KEYS[5], ARGV[7]) == 1 then
  return 'removed'
end
if ARGV[7] ~= '' then
  local owner = redis.call('GET', KEYS[6])
  if owner and owner ~= ARGV[1] then
    return 'owned ' .. owner
  end
end
local holder, known = redis.call('GET', KEYS[3]), redis.call('GET', KEYS[2])
-- The mark stops every machine. The lease alone, before the restore has changed anything, stops only machines that start: the restore is refused
-- when it finds running machines. A machine whose lease has run out counts as one that starts, because the restore may not have found it.
local restore = redis.call('GET', KEYS[8]) or (holder ~= ARGV[2] and redis.call('GET', KEYS[9]))
if restore then
  return 'restoring ' .. restore
end
local note = redis.call('HGET', KEYS[7], ARGV[1])
-- Entries of earlier releases name no roles: any role is then allowed.
local allowed = note and cjson.decode(note).roles
if allowed then
  local isAllowed = {}
  for _, role in ipairs(allowed) do
    isAllowed[role] = true
  end
  for _, role in ipairs(cjson.decode(ARGV[8])) do
    if not isAllowed[role] then
      return 'roles ' .. table.concat(allowed, ', ')
    end
  end
end
if holder and holder ~= ARGV[2] and ARGV[6] ~= '1' then
  return { known or '{}', redis.call('PTTL', KEYS[3]) }
end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[4])
if ARGV[7] ~= '' then
  redis.call('SET', KEYS[6], ARGV[1], 'PX', ARGV[4])
end
if redis.call('SADD', KEYS[1], ARGV[1]) == 1 or known ~= ARGV[5] then
  redis.call('PUBLISH', KEYS[4], ARGV[1])
end
return false
