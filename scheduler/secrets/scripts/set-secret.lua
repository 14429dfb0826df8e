--[[
  Stores a new value of a secret. A repeated call only returns the reply.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] the tenant's sealed values (hash)
  KEYS[3] reply to this call (string)

  ARGV[1] name
  ARGV[2] sealed value
  ARGV[3] time of the change, ISO 8601
  ARGV[4] author of the change
  ARGV[5] maximum secrets of a tenant
  ARGV[6] maximum stored values of a tenant
  ARGV[7] how long the reply is kept, ms

  Returns the revision, -1 for too many secrets, -2 for too many values.
]]
local answered = redis.call('GET', KEYS[3])
if answered then
  return tonumber(answered)
end
-- The hash holds one more field, which counts the revisions.
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
