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
