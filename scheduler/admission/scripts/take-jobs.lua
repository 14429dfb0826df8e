--[[
  Hands admitted jobs to a runtime: from BullMQ's list `wait` to its list `active`, with lock and holder, as BullMQ's own moveToActive does
  for one job. It takes no more than an equal part of the waiting jobs for each registered runtime.

  KEYS[1] BullMQ wait (list)
  KEYS[2] BullMQ active (list)
  KEYS[3] BullMQ marker (sorted set), which wakes a sleeping runtime
  KEYS[4] registered runtimes (hash)

  ARGV[1] prefix of the keys of jobs
  ARGV[2] runtime that takes them
  ARGV[3] token of this fetch, the value of the jobs' locks
  ARGV[4] now, ms
  ARGV[5] duration of the locks, ms
  ARGV[6] most jobs to take

  Returns {number of jobs left, data of each taken job...}.
]]
--- @include "../../store/scripts/even-when-full.lua"

local wait, active, marker, runtimes = unpack(KEYS)
local jobs, runtimeId, token, now, lockMs = unpack(ARGV)

local left = redis.call('LLEN', wait)
local most = math.min(tonumber(ARGV[6]), math.ceil(left / math.max(1, redis.call('HLEN', runtimes))))
local taken = {}
for _ = 1, most do
  local id = redis.call('RPOPLPUSH', wait, active)
  local job = jobs .. id
  redis.call('SET', job .. ':lock', token, 'PX', lockMs)
  redis.call('HSET', job, 'processedOn', now, 'pb', runtimeId)
  local data, placement = unpack(redis.call('HMGET', job, 'data', 'placement'))
  -- Admission chose the place after the job was made.
  taken[#taken + 1] = data and placement and '{"placement":"' .. placement .. '",' .. string.sub(data, 2) or data or ''
end
left = left - #taken
-- The marker wakes another runtime for the jobs that are left; without any it would only cause an empty fetch.
if left > 0 then
  redis.call('ZADD', marker, 0, '0')
else
  redis.call('DEL', marker)
end
return { left, unpack(taken) }
