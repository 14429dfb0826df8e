--[[
  Creates a tenant. A repeated call only returns the reply.

  KEYS[1] names of all tenants (set)
  KEYS[2] the tenant's record (hash)
  KEYS[3] reply to this call (string)

  ARGV[1] name
  ARGV[2] maximum tenants of the installation
  ARGV[3] how long the reply is kept, ms
  ARGV[4…] fields and values of the record

  Returns 1 created, 0 the name is taken, -1 there are as many tenants as allowed.
]]
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('SADD', KEYS[1], ARGV[1])
  return 0
end
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return -1
end
redis.call('SET', KEYS[3], '1', 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], unpack(ARGV, 4))
return 1
