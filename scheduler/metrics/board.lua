-- The last measurements of each process.

--- @script "publish"
--[[
  Replaces the snapshot of one process, and deletes expired snapshots of other processes. A repeated call only renews the expiry.

  KEYS[1] snapshots (hash): process to text
  KEYS[2] expiries (sorted set): process by expiry of its snapshot (ms since the epoch, Redis' clock)
  ARGV[1] process
  ARGV[2] the process's snapshot
  ARGV[3] how long the snapshot is valid, ms
  ARGV[4] maximum number of processes with a snapshot

  Returns 1 when the snapshot is stored, 0 when ARGV[4] other processes have one, so that this one is not stored.
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

--- @script "read"
--[[
  Reads the valid snapshots of all processes. Changes nothing.

  KEYS[1] snapshots (hash): process to text
  KEYS[2] expiries (sorted set): process by expiry of its snapshot (ms since the epoch, Redis' clock)

  Returns alternating processes and snapshots, sorted by process.
]]
local time = redis.call('TIME')
local live = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. (time[1] * 1000 + math.floor(time[2] / 1000)), '+inf')
table.sort(live)
local found = {}
for _, process in ipairs(live) do
  local snapshot = redis.call('HGET', KEYS[1], process)
  if snapshot then
    found[#found + 1] = process
    found[#found + 1] = snapshot
  end
end
return found
