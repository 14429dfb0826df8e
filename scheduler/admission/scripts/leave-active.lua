--[[
  Takes a job out of its runtime's hands, whatever has become of it, and settles its invocation, in one step:
    - it has ended, or its record is gone: the job is dropped;
    - it has not begun: back to its place in line (with mode `over`, where the runtime should have ended it: failed with `internal`);
    - it was running and a cancel was asked for: cancelled;
    - it was running and may be restarted: back to its place in line, in the next epoch;
    - it was running: failed, in the next epoch.

  Its place in line is by arrival: only jobs that have been given back stand before those that never started, so the search from the head
  is short. (BullMQ keeps the waiting jobs in a list whose right end is the head, and wakes workers through its marker.)

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)
  KEYS[5] BullMQ job (hash)
  KEYS[6] BullMQ active (list)
  KEYS[7] BullMQ wait (list)
  KEYS[8] BullMQ stalled (set)
  KEYS[9] BullMQ marker (sorted set)

  ARGV[1..8] see invocations/scripts/include/end-arguments.lua
  ARGV[9] runtime that holds the job
  ARGV[10] mode: over (the runtime is done with it) | lost (the runtime is dead) | return (the runtime gives it back)
  ARGV[11] failure code, when it was running
  ARGV[12] failure message
  ARGV[13] data of the error event
  ARGV[14] how many attempts a restartable invocation gets
  ARGV[15] what comes before an id in the key of a record

  Returns 'dropped' | 'waiting' | 'failed' | 'cancelled', or 'not-held' when that runtime does not hold it.
]]
--- @include "../../invocations/scripts/include/end-arguments.lua"
--- @include "../../invocations/scripts/include/end-invocation.lua"
--- @include "../../invocations/scripts/include/platform-failure.lua"

local record, job, active, wait = KEYS[1], KEYS[5], KEYS[6], KEYS[7]
local id, runtimeId, mode = ARGV[1], ARGV[9], ARGV[10]

if redis.call('HGET', job, 'pb') ~= runtimeId or redis.call('LREM', active, 1, id) == 0 then
  return 'not-held'
end
redis.call('DEL', job .. ':lock')
redis.call('SREM', KEYS[8], id)

local function drop()
  redis.call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end

local function backInLine(arrival)
  redis.call('HDEL', job, 'pb', 'processedOn')
  local mine = tonumber(arrival)
  local at = -1
  local before = redis.call('LINDEX', wait, at)
  while before do
    local other = tonumber(redis.call('HGET', ARGV[15] .. before, 'arrival'))
    if other and other > mine then
      break
    end
    at = at - 1
    before = redis.call('LINDEX', wait, at)
  end
  if before then
    redis.call('LINSERT', wait, 'AFTER', before, id)
  else
    redis.call('LPUSH', wait, id)
  end
  redis.call('ZADD', KEYS[9], 0, '0')
end

local status, epoch, seq, owner, restartable, attempts, cancelReason, arrival = unpack(redis.call('HMGET', record, 'status', 'epoch', 'seq',
  'runtimeId', 'restartable', 'attempts', 'cancelReason', 'arrival'))

if status ~= 'queued' and status ~= 'running' then
  drop()
  return 'dropped'
end
if status == 'queued' and mode ~= 'over' then
  backInLine(arrival)
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
if status == 'running' and mode ~= 'over' and restartable == '1' and tonumber(attempts) < tonumber(ARGV[14]) then
  local a = endArguments()
  local notice = cjson.encode({ level = 'warn', message = ARGV[12] .. ' It starts again from the beginning.' })
  local nextSeq = tonumber(seq) + 1
  redis.call('XADD', KEYS[2], nextSeq .. '-0', 'e', 'log', 'd', notice)
  redis.call('PUBLISH', a.live, nextSeq .. '\0log\0' .. notice)
  functionLog(record, nextSeq, 'log', notice, a.now, a.logLines, a.logMs)
  redis.call('HSET', record, 'status', 'queued', 'epoch', tonumber(epoch) + 1, 'seq', nextSeq)
  redis.call('HDEL', record, 'runtimeId', 'token')
  local waiting, submittedAt, deadlineMs = unpack(redis.call('HMGET', record, 'waitingKey', 'submittedAt', 'deadlineMs'))
  if waiting then
    redis.call('ZADD', waiting, tonumber(submittedAt) + tonumber(deadlineMs), id)
  end
  backInLine(arrival)
  return 'waiting'
end
platformFailure(endArguments(), epoch, seq, ARGV[11], ARGV[12], ARGV[13])
drop()
return 'failed'
