--[[
  Takes a job from its runtime, and ends or requeues its invocation in one step. The first case that holds decides:
    - the invocation has ended, or its record is gone, or another runtime runs it: the job is dropped;
    - the invocation has not begun, and the mode is not `over`: back to its place in the queue;
    - the invocation is running, and a client has requested a cancel: cancelled;
    - the mode is not `over`, and the attempt was begun by a fetch whose jobs the runtime has not received (take-jobs.lua): back to its place in
      the queue. Nothing of the attempt can have run, so it does not count;
    - the mode is not `over`, and the invocation may be restarted (it has attempts left, and all its client's messages are still stored): back to
      its place in the queue, in the next epoch;
    - any other case: failed, in the next epoch. With mode `over`, the runtime should have ended the invocation.

  A tenant's queue is in order of arrival, so a requeued invocation takes its earlier place.

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
  ARGV[11] failure code
  ARGV[12] failure message
  ARGV[13] data of the error event
  ARGV[14] maximum attempts of a restartable invocation
  ARGV[15] prefix of every key
  ARGV[16] token of the fetch, or '' for any: the same runtime may have fetched the job again since
  ARGV[17] cause of the end, for an invocation that starts again

  Returns 'dropped' | 'waiting' | 'cancelled', 'not-held' when the runtime does not hold the job, {'failed', tenant, function}, or
  {'restarted', tenant, function} for an attempt that the runtime received and whose invocation starts again.
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

local status, epoch, seq, owner, restartable, attempts, cancelReason, arrival, tenant, cut, begunBy, account, granted, fn = unpack(redis.call('HMGET',
  record, 'status', 'epoch', 'seq', 'runtimeId', 'restartable', 'attempts', 'cancelReason', 'arrival', 'tenant', 'inboxCut', 'token', 'account',
  'granted', 'function'))

-- True when the fetch that handed over the job also began its attempt, and the runtime has not said that it received the jobs.
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
  redis.call('HDEL', record, 'runtimeId', 'token', 'startedAt', 'shown', 'granted')
  if granted then
    returnGrant(account, id, 0, tonumber(now))
  end
  backToQueue(tenant, arrival)
  return 'waiting'
end
if status == 'running' and mode ~= 'over' and restartable == '1' and not cut and tonumber(attempts) < tonumber(ARGV[14]) then
  giveUpAttempt(endArguments(), epoch, passLostTail(endArguments(), seq), ARGV[17] .. ' It starts again from the beginning.')
  backToQueue(tenant, arrival)
  return {'restarted', tenant, fn}
end
platformFailure(endArguments(), epoch, seq, ARGV[11], ARGV[12], ARGV[13])
drop()
return {'failed', tenant, fn}
