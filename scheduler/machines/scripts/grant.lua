--[[
  Notes a machine that joins, unless one of its name has joined or is registered, or its certificate was removed.

  KEYS[1] machines that have joined (hash)
  KEYS[2] description of the machine of this name (string with a TTL)
  KEYS[3] fingerprints of the certificates of removed machines (set)
  ARGV[1] name
  ARGV[2] the hash of its password and its certificate, as JSON text
  ARGV[3] fingerprint of its certificate

  Returns 1 when it is noted, 0 when it is refused.
]]
if redis.call('EXISTS', KEYS[2]) == 1 or redis.call('SISMEMBER', KEYS[3], ARGV[3]) == 1 then
  return 0
end
return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
