--[[
  Ends a running attempt to make room. Its invocation is queued again at its original place in its tenant's queue, in the next epoch, and
  is admitted like any other.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)
  KEYS[5] BullMQ job (hash)
  KEYS[6] BullMQ active (list)
  KEYS[7] BullMQ stalled (set)

  ARGV[1..8] see include/end-arguments.lua
  ARGV[9] epoch of the attempt
  ARGV[10] number of the log event that states the cause
  ARGV[11] cause
  ARGV[12] attempts that a restartable invocation gets
  ARGV[13] usage of the attempt as it is counted, see ../../usage/scripts/include/metering.lua, or ''
  ARGV[14] maximum pages that the attempt held or asked for, JSON by model, or '': the next attempt is expected to hold at least as many
  ARGV[15] '1' when the attempt ended for lack of memory: the next attempt waits until a GPU host has the pages of ARGV[14], see ../../admission

  Returns 'requeued' by this call, or by the same call made before; 'not-restartable'; 'no-attempts-left'; 'cancelled' when a cancel is in
          progress (after these three, the attempt is still the running one); 'stale' epoch (or no such record); 'ended'.
          {-3, number of the log's last event} when ARGV[10] is not the next number.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/end-arguments.lua"
--- @include "./include/end-invocation.lua"
--- @include "./include/give-up-attempt.lua"

local record, job = KEYS[1], KEYS[5]
local status, epoch, seq, restartable, attempts, cancelReason, requeuedEpoch, arrival, prefix, tenant, cut = unpack(redis.call('HMGET', record,
  'status', 'epoch', 'seq', 'restartable', 'attempts', 'cancelReason', 'requeuedEpoch', 'arrival', 'prefix', 'tenant', 'inboxCut'))
if requeuedEpoch == ARGV[9] then
  return 'requeued'
end
if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
  return 'ended'
end
if status ~= 'running' or epoch ~= ARGV[9] then
  return 'stale'
end
-- Another attempt would not get the messages that the inbox has dropped.
if restartable ~= '1' or cut then
  return 'not-restartable'
end
if cancelReason then
  return 'cancelled'
end
if tonumber(attempts) >= tonumber(ARGV[12]) then
  return 'no-attempts-left'
end
if tonumber(ARGV[10]) ~= tonumber(seq) + 1 then
  return {-3, tonumber(seq)}
end

meter(record, epoch, ARGV[13], tonumber(ARGV[4]))
giveUpAttempt(endArguments(), epoch, seq, ARGV[11])
redis.call('HSET', record, 'requeuedEpoch', epoch)
if ARGV[14] ~= '' then
  redis.call('HSET', record, 'leastPages', ARGV[14])
end
if ARGV[15] == '1' then
  redis.call('HSET', record, 'shortAt', ARGV[4])
end
redis.call('LREM', KEYS[6], 1, ARGV[1])
redis.call('DEL', job .. ':lock')
redis.call('SREM', KEYS[7], ARGV[1])
changeAdmission(prefix, ARGV[4], function(a) enterQueue(a, tenant, ARGV[1], arrival) end)
return 'requeued'
