--[[
  Stores what one process has measured, in place of what it stored before, and forgets processes that have stored nothing for too long.
  Repeating it changes nothing but the time.

  KEYS[1] snapshots (hash): process to text
  KEYS[2] expiries (sorted set): process by when its snapshot is no longer true (ms since the epoch, Redis' clock)
  ARGV[1] process
  ARGV[2] its snapshot
  ARGV[3] how long it holds, ms
  ARGV[4] most processes

  Returns 1 stored, 0 there are that many other processes already.
]]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)
if #gone > 0 then
  redis.call('ZREM', KEYS[2], unpack(gone))
  redis.call('HDEL', KEYS[1], unpack(gone))
end
if redis.call('ZSCORE', KEYS[2], ARGV[1]) == false and redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
