--[[
  Claims the name of a machine for a supervisor, or renews the claim. The claim is a lease: it ends unless the supervisor renews it in time.

  KEYS[1] names of registered machines (set)
  KEYS[2] description of the machine, as JSON text (string with a TTL)
  KEYS[3] the lease of the name: id of the supervisor run that holds the lease (string with a TTL)
  KEYS[4] channel on which changes of machines are published
  KEYS[5] fingerprints of the certificates of removed machines (set)
  KEYS[6] name of the machine that uses the certificate ARGV[7] (string with a TTL)
  KEYS[7] machines that have joined with a token (hash of machine name to JSON text)
  KEYS[8] the restore mark: id of a restore that is changing the platform, or broke off while it did (string)
  KEYS[9] the restore lease: id of the restore that runs (string with a TTL)
  KEYS[10] what the supervisor last saw of its processes, as JSON text (string with a TTL)
  ARGV[1] name of the machine
  ARGV[2] id of this supervisor run
  ARGV[3] how long the lease holds, ms
  ARGV[4] how long the description is kept without renewal, ms
  ARGV[5] description of the machine, as JSON text
  ARGV[6] '1' to take the name even while another supervisor holds the lease, else '0'
  ARGV[7] fingerprint of the machine's certificate, or empty
  ARGV[8] roles of the machine, as JSON text
  ARGV[9] value for KEYS[10], or empty for none

  Returns false when this supervisor now holds the name, else the reason of the refusal:
    'removed'            an operator has removed the machine with this certificate
    'owned NAME'         the machine NAME uses this certificate
    'restoring ID'       the restore ID keeps this machine from starting or from going on
    'roles ROLES'        the token with which the machine joined allows only ROLES
    {description, ms}    another supervisor holds the name: description of its machine as JSON text, and ms until its lease ends
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
-- The restore mark stops every machine. A restore that has not set the mark has changed nothing, so its lease stops only machines that start.
-- Running machines may go on, because the restore looks for them and is refused when it finds one. A machine whose lease has ended counts as one that
-- starts, because the restore may not have found it.
local restore = redis.call('GET', KEYS[8]) or (holder ~= ARGV[2] and redis.call('GET', KEYS[9]))
if restore then
  return 'restoring ' .. restore
end
local note = redis.call('HGET', KEYS[7], ARGV[1])
-- An entry that an earlier release wrote lists no roles. Its machine may have any role.
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
if ARGV[9] ~= '' then
  redis.call('SET', KEYS[10], ARGV[9], 'PX', ARGV[3])
end
if ARGV[7] ~= '' then
  redis.call('SET', KEYS[6], ARGV[1], 'PX', ARGV[4])
end
if redis.call('SADD', KEYS[1], ARGV[1]) == 1 or known ~= ARGV[5] then
  redis.call('PUBLISH', KEYS[4], ARGV[1])
end
return false
