--[[
  Stores the record of a new invocation and gives it its place in line.

  KEYS[1] record (hash)
  KEYS[2] arrivals (counter)
  KEYS[3] deadlines (sorted set)
  KEYS[4] recent invocations of the function (sorted set)
  KEYS[5] idempotency key (string), or the record again when the request has none
  KEYS[6] the tenant's invocations that wait (sorted set by deadline); the record says where it is

  ARGV[1] id
  ARGV[2] submitted at, ms
  ARGV[3] deadline, ms after submission
  ARGV[4] how long the idempotency key is remembered, ms; 0 without a key
  ARGV[5] how many recent invocations are listed
  ARGV[6] how long they are listed, ms
  ARGV[7] most that may wait, this one included; -1 for no bound
  ARGV[8...] further fields and values of the record

  Returns {1, arrival}; again the same when the record is there already (a command sent twice).
          {0, id} when the idempotency key belongs to another invocation.
          {-1, how many wait} when that is as many as may; nothing was stored.
]]
local record, arrivals, deadlines, recent, idempotency, waiting = unpack(KEYS)
local id, submittedAt, deadlineMs = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local idempotencyMs, maxWaiting = tonumber(ARGV[4]), tonumber(ARGV[7])

local known = redis.call('HGET', record, 'arrival')
if known then
  return {1, tonumber(known)}
end
if idempotencyMs > 0 then
  local first = redis.call('GET', idempotency)
  if first then
    return {0, first}
  end
end
-- What is past its deadline waits no more, whoever forgot to say so.
local before = redis.call('ZCOUNT', waiting, '(' .. submittedAt, '+inf')
if maxWaiting >= 0 and before >= maxWaiting then
  return {-1, before}
end
-- The first write, and one that a Redis at its memory limit refuses.
local arrival = redis.call('INCR', arrivals)
if idempotencyMs > 0 then
  redis.call('SET', idempotency, id, 'PX', idempotencyMs)
end
redis.call('ZREMRANGEBYSCORE', waiting, '-inf', submittedAt)
redis.call('HSET', record, 'id', id, 'status', 'queued', 'arrival', arrival, 'epoch', 0, 'attempts', 0, 'seq', 0, 'bytes', 0,
  'submittedAt', ARGV[2], 'deadlineMs', ARGV[3], 'waitingKey', waiting, unpack(ARGV, 8))
redis.call('ZADD', waiting, submittedAt + deadlineMs, id)
redis.call('ZADD', deadlines, submittedAt + deadlineMs, id)
redis.call('ZADD', recent, submittedAt, id)
redis.call('ZREMRANGEBYRANK', recent, 0, -1 - tonumber(ARGV[5]))
redis.call('PEXPIRE', recent, tonumber(ARGV[6]))
return {1, arrival}
