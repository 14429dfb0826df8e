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
  KEYS[10] the reply to this call, see ../../store/scripts/once.lua
  ARGV[1] name
  ARGV[2] notice of the removal for the channel

  Returns 1 when the machine is removed, 0 when no machine of this name is registered or has joined.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../store/scripts/once.lua"
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
