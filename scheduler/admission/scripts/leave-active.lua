--[[
  Takes a job from its runtime and settles its invocation in one step. The invocation decides:
    - it has ended, or its record is gone: the job is dropped;
    - it has not begun: back to its place in the queue (with mode `over`, where the runtime should have ended it: failed with `internal`);
    - it was running and a client had requested a cancel: cancelled;
    - it was running, begun by a fetch whose jobs the runtime has not received (take-jobs.lua): back to its place in the queue. Nothing of it can
      have run, so the attempt does not count;
    - it was running and may be restarted (all its client's messages are still stored): back to its place in the queue, in the next epoch;
    - it was running: failed, in the next epoch.

  A tenant's queue is in order of arrival.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)
  KEYS[5] BullMQ job (hash)
  KEYS[6] BullMQ active (list)
  KEYS[7] BullMQ stalled (set)

  ARGV[1..8] see invocations/scripts/include/end-arguments.lua
  ARGV[9] runtime that holds the job
  ARGV[10] mode: over (the runtime is done with it) | lost (the runtime is dead) | return (the runtime gives it back)
  ARGV[11] failure code for a running invocation
  ARGV[12] failure message
  ARGV[13] data of the error event
  ARGV[14] attempts that a restartable invocation gets
  ARGV[15] prefix of every key
  ARGV[16] token of the fetch, or '' for any: the same runtime may have fetched the job again since

  Returns 'dropped' | 'waiting' | 'failed' | 'cancelled', or 'not-held' when the runtime does not hold the job.
]]
--- @include "../../invocations/scripts/include/end-arguments.lua"
--- @include "../../invocations/scripts/include/end-invocation.lua"
--- @include "../../invocations/scripts/include/platform-failure.lua"
--- @include "../../invocations/scripts/include/give-up-attempt.lua"

local record, job, active = KEYS[1], KEYS[5], KEYS[6]
local id, now, runtimeId, mode, prefix, token = ARGV[1], ARGV[4], ARGV[9], ARGV[10], ARGV[15], ARGV[16]

if redis.call('HGET', job, 'pb') ~= runtimeId or (token ~= '' and redis.call('GET', job .. ':lock') ~= token) then
  return 'not-held'
end
-- Search from the tail, where the oldest jobs are.
if redis.call('LREM', active, -1, id) == 0 then
  return 'not-held'
end
redis.call('SREM', prefix .. ':runtime:' .. runtimeId .. ':held', id)
local fetchedBy = redis.call('GET', job .. ':lock')
redis.call('DEL', job .. ':lock')
redis.call('SREM', KEYS[7], id)

local function drop()
  redis.call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end

local function backToQueue(tenant, arrival)
  changeAdmission(prefix, now, function(a) enterQueue(a, tenant, id, arrival) end)
end

local status, epoch, seq, owner, restartable, attempts, cancelReason, arrival, tenant, cut, begunBy = unpack(redis.call('HMGET', record,
  'status', 'epoch', 'seq', 'runtimeId', 'restartable', 'attempts', 'cancelReason', 'arrival', 'tenant', 'inboxCut', 'token'))

local function isUnreceived()
  local jobs = begunBy and begunBy == fetchedBy
    and redis.call('HGET', prefix .. ':runtime:' .. runtimeId .. ':fetch', 'jobs:' .. begunBy)
  return jobs and string.find(' ' .. jobs .. ' ', ' ' .. id .. ' ', 1, true)
end

if status ~= 'queued' and status ~= 'running' then
  -- The invocation's end removed the ledger entry, unless Redis lost the record.
  if redis.call('HEXISTS', prefix .. ':admission:ledger', id) == 1 then
    changeAdmission(prefix, now, function(a) leaveAdmission(a, nil, id) end)
  end
  drop()
  return 'dropped'
end
if status == 'queued' and mode ~= 'over' then
  backToQueue(tenant, arrival)
  return 'waiting'
end
if status == 'running' and owner ~= runtimeId then
  drop()
  return 'dropped'
end

if status == 'running' and cancelReason then
  platformFailure(endArguments(), epoch, seq, 'cancelled', cancelReason, cjson.encode({ code = 'cancelled', message = cancelReason }))
  drop()
  return 'cancelled'
end
if status == 'running' and mode ~= 'over' and isUnreceived() then
  redis.call('HSET', record, 'status', 'queued', 'epoch', tonumber(epoch) + 1, 'attempts', tonumber(attempts) - 1)
  redis.call('HDEL', record, 'runtimeId', 'token', 'startedAt', 'shown')
  backToQueue(tenant, arrival)
  return 'waiting'
end
if status == 'running' and mode ~= 'over' and restartable == '1' and not cut and tonumber(attempts) < tonumber(ARGV[14]) then
  giveUpAttempt(endArguments(), epoch, passLostTail(endArguments(), seq), ARGV[12] .. ' It starts again from the beginning.')
  backToQueue(tenant, arrival)
  return 'waiting'
end
platformFailure(endArguments(), epoch, seq, ARGV[11], ARGV[12], ARGV[13])
drop()
return 'failed'
