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
