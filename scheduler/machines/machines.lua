-- The names and leases of machines, and the users of Redis that they may use.

--- @script "claim"
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
--- @include "../store/even-when-full.lua"
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
-- A machine that did not join may have any role.
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

--- @script "release"
--[[
  Removes a machine whose supervisor stops, unless another supervisor has taken its name.

  KEYS[1] names of registered machines (set)
  KEYS[2] description of the machine, as JSON text (string with a TTL)
  KEYS[3] the lease (string with a TTL)
  KEYS[4] channel of changes
  KEYS[5] fingerprints of the certificates of removed machines (set)
  KEYS[6] name of the machine that has this machine's certificate (string with a TTL)
  KEYS[7..9] not used
  KEYS[10] what the supervisor last saw of its processes (string with a TTL)
  ARGV[1] name
  ARGV[2] id of this run of the supervisor

  Returns 1 when the machine is removed, 0 when another supervisor holds the name.
]]
--- @include "../store/even-when-full.lua"
local known = redis.call('GET', KEYS[2])
if known and cjson.decode(known).life ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[6], KEYS[10])
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[4], ARGV[1])
return 1

--- @script "remove"
--[[
  Removes a machine for good: no supervisor with its certificate can claim a name again. A supervisor without a certificate learns of the removal
  only from the notice.

  KEYS[1] names of registered machines (set)
  KEYS[2] description of the machine, as JSON text (string with a TTL)
  KEYS[3] the lease (string with a TTL)
  KEYS[4] channel of changes
  KEYS[5] fingerprints of the certificates of removed machines (set)
  KEYS[6] not used
  KEYS[7] machines that have joined (hash)
  KEYS[8..9] not used
  KEYS[10] the reply to this call, see ../store/store.lua
  ARGV[1] name
  ARGV[2] notice of the removal for the channel

  Returns 1 when the machine is removed, 0 when no machine of this name is registered or has joined.
]]
--- @include "../store/even-when-full.lua"
--- @include "../store/store.lua"
local answered = answeredBefore(KEYS[10])
if answered then
  return answered
end
local known, joined = redis.call('GET', KEYS[2]), redis.call('HGET', KEYS[7], ARGV[1])
if not known and not joined then
  return 0
end
for _, text in ipairs({ known or '{}', joined or '{}' }) do
  local certificate = cjson.decode(text).certificate
  if certificate then
    redis.call('SADD', KEYS[5], certificate)
  end
end
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[7], ARGV[1])
redis.call('PUBLISH', KEYS[4], ARGV[2])
return answerOnce(KEYS[10], 1)

--- @script "grant"
--[[
  Uses a token up for a machine that joins, and stores the machine's note. A refusal leaves the token usable. A grant ends the drains of a removed
  machine of the same name, because they would keep new work from the new machine's processes. A repeated call only returns the reply.

  KEYS[1] machines that have joined (hash, name to note)
  KEYS[2] description of the machine of this name (string with a TTL)
  KEYS[3] fingerprints of the certificates of removed machines (set)
  KEYS[4] the token (string with a TTL)
  KEYS[5] drained GPU hosts and machines (hash)
  KEYS[6] channel of changes of KEYS[5]
  ARGV[1] name
  ARGV[2] the machine's note, as JSON text: certificate, roles, time, and the hash of its password. Each call has a new password, so an equal stored
          note means that this call is a repetition
  ARGV[3] fingerprint of the machine's certificate
  ARGV[4] the machine's field in KEYS[5]; the fields of its GPU hosts end in `@<name>`

  Returns 1 when the note is stored; 0 when a machine of this name has joined or is registered, or when the certificate is that of a removed
  machine; -1 when the token is used or has expired.
]]
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  return 1
end
if redis.call('EXISTS', KEYS[4]) == 0 then
  return -1
end
if
  redis.call('EXISTS', KEYS[2]) == 1
  or redis.call('SISMEMBER', KEYS[3], ARGV[3]) == 1
  or redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0
then
  return 0
end
redis.call('DEL', KEYS[4])
local suffix, ended = '@' .. ARGV[1], 0
for _, entry in ipairs(redis.call('HKEYS', KEYS[5])) do
  if entry == ARGV[4] or string.sub(entry, -#suffix) == suffix then
    ended = ended + redis.call('HDEL', KEYS[5], entry)
  end
end
if ended > 0 then
  redis.call('PUBLISH', KEYS[6], ARGV[1])
end
return 1
