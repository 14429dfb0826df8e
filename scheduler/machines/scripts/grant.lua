--[[
  Uses a token up for a machine that joins, and notes the machine. A refusal leaves the token usable.

  KEYS[1] machines that have joined (hash)
  KEYS[2] description of the machine of this name (string with a TTL)
  KEYS[3] fingerprints of the certificates of removed machines (set)
  KEYS[4] the token (string with a TTL)
  ARGV[1] name
  ARGV[2] the hash of its password and its certificate, as JSON text
  ARGV[3] fingerprint of its certificate

  Returns 1 when it is noted, 0 when a machine of its name has joined or is registered, or its certificate was removed, and -1 when the
  token is used or has expired.
]]
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
return 1
