--[[
  Stores a new value of a secret. Of a call that is sent twice the second only answers.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] their sealed values (hash)
  KEYS[3] reply to this call (string)

  ARGV[1] name
  ARGV[2] sealed value
  ARGV[3] when, ISO 8601
  ARGV[4] who
  ARGV[5] secrets that a tenant may have
  ARGV[6] values that are kept of a tenant
  ARGV[7] how long the reply is remembered, ms

  Returns the revision, -1 there are as many secrets as may be, -2 as many values.
]]
local answered = redis.call('GET', KEYS[3])
if answered then
  return tonumber(answered)
end
-- One field counts the revisions.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[5]) then
  return -1
end
if redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[6]) then
  return -2
end
local revision = redis.call('HINCRBY', KEYS[1], '', 1)
redis.call('SET', KEYS[3], revision, 'PX', ARGV[7])
redis.call('HSET', KEYS[2], ARGV[1] .. '@' .. revision, ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({ revision = revision, changedAt = ARGV[3], changedBy = ARGV[4] }))
return revision
