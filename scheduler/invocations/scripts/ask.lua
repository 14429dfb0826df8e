--[[
  Ends an attempt that asks a person. The invocation waits for the answer without an attempt, a slot or pages. Redis keeps its
  job, but in none of BullMQ's lists.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)
  KEYS[5] BullMQ job (hash)
  KEYS[6] BullMQ active (list)
  KEYS[7] BullMQ stalled (set)
  KEYS[8] questions (sorted set)
  KEYS[9] the tenant's questions (set)

  ARGV[1..8] see include/end-arguments.lua
  ARGV[9] epoch of the attempt
  ARGV[10] number of the event `question`
  ARGV[11] 'question', the event's name; appendEvents reads the name and the data from ARGV
  ARGV[12] data of that event, JSON text
  ARGV[13] end of the wait, ms
  ARGV[14] state for the next attempt, a JSON string
  ARGV[15] token of the last message that the attempt has handled, 16 bytes, or '' for none
  ARGV[16] usage of the attempt as it is counted, see ../../usage/scripts/include/metering.lua
  ARGV[17..19] approximate number of events that a log keeps, maximum bytes of their data, maximum bytes of the family's events; see append.lua
  ARGV[20] maximum messages that wait in an inbox, besides the kept ones

  Returns 'waiting' when this call, or the same call made before, has ended the attempt. After any other reply, nothing has changed:
          'cancelled' when a cancel is in progress; 'stale' for another epoch, or no such record; 'ended'; 'full' when the log has no room for the
          event; {-3, number of the log's last event} when the event's number is not the next one; {-4, quota, limit, used} when the tenant may
          keep no more bytes in Redis.
]]
--- @include "./include/end-arguments.lua"
--- @include "./include/end-invocation.lua"
--- @include "./include/append-events.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"

local record, job, id, changed = KEYS[1], KEYS[5], ARGV[1], {}
local a = endArguments()
local status, epoch, seq, cancelReason, asked, prefix, account, submitter, keptMessages, keptBytes, inboxBytes, heldBefore,
  bytes, firstMessageAt, rootKey, familyBytes, idempotencyKey, idempotencyMs, deadlineMs, granted = unpack(redis.call('HMGET', record, 'status', 'epoch',
  'seq', 'cancelReason', 'askedEpoch', 'prefix', 'account', 'submitter', 'inboxKept', 'inboxKeptBytes', 'inboxBytes', 'questionBytes', 'bytes',
  'firstMessageAt', 'rootKey', 'familyBytes', 'idempotencyKey', 'idempotencyMs', 'deadlineMs', 'granted'))
if asked == ARGV[9] then
  return 'waiting'
end
if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
  return 'ended'
end
if status ~= 'running' or epoch ~= ARGV[9] then
  return 'stale'
end
if cancelReason then
  return 'cancelled'
end
if tonumber(ARGV[10]) ~= tonumber(seq) + 1 then
  return {-3, tonumber(seq)}
end
-- The next attempt does not get the handled messages again, so drop them.
local handled, freed = tonumber(keptMessages or 0), tonumber(keptBytes or 0)
if ARGV[15] ~= '' then
  local read = 0
  for index, message in ipairs(redis.call('LRANGE', a.inbox, handled, handled + tonumber(ARGV[20]) - 1)) do
    read = read + #message
    if string.sub(message, 1, #ARGV[15]) == ARGV[15] then
      handled, freed = handled + index, freed + read
      break
    end
  end
end
-- The account counts the bytes of the question and of the state in the job until the next question, although the record loses the question at the
-- end of the wait. The question's event in the log counts like any other event.
local questionBytes = #ARGV[12] + #ARGV[14]
local added = questionBytes - tonumber(heldBefore or 0) - freed
local refusal = bytesRefusal(account, math.max(0, added + EVENT_BYTES + #ARGV[12]), tonumber(ARGV[4]))
if refusal then
  return {-4, unpack(refusal)}
end
refusal = appendEvents({ record = record, events = a.events, channel = a.live, firstSeq = tonumber(ARGV[10]), first = 11, count = 1 },
  { id = id, epoch = epoch, seq = seq, bytes = bytes, account = account, firstMessageAt = firstMessageAt, rootKey = rootKey,
  familyBytes = familyBytes, submitter = submitter }, { now = tonumber(ARGV[4]), events = tonumber(ARGV[17]), bytes = tonumber(ARGV[18]),
  familyBytes = tonumber(ARGV[19]), ahead = 0 }, changed)
if refusal then
  return refusal == -2 and 'full' or refusal
end
runGathered()

meter(record, epoch, ARGV[16], tonumber(ARGV[4]))
if granted then
  returnGrant(account, id, 0, tonumber(ARGV[4]))
end
if handled > 0 then
  redis.call('LTRIM', a.inbox, handled, -1)
  redis.call('HSET', record, 'inboxBytes', tonumber(inboxBytes) - freed)
end
holdBytes(account, 'i:' .. id, added)
redis.call('HDEL', record, 'runtimeId', 'token', 'inboxKept', 'inboxKeptBytes', 'inboxCut', 'shown', 'leastPages', 'shortAt', 'granted')
redis.call('HSET', record, 'status', 'waiting', 'epoch', tonumber(epoch) + 1, 'askedEpoch', epoch, 'askedAt', ARGV[4], 'question', ARGV[12],
  'questionBytes', questionBytes, 'questionsKey', KEYS[8], 'tenantQuestionsKey', KEYS[9], unpack(changed))
if idempotencyKey then
  -- Keep the key at least until the deadline, which moves back by the time of the wait.
  redis.call('PEXPIRE', idempotencyKey, tonumber(ARGV[13]) - tonumber(ARGV[4]) + tonumber(deadlineMs) + tonumber(idempotencyMs))
end
redis.call('HSET', job, 'state', ARGV[14])
redis.call('ZREM', a.deadlines, id)
redis.call('ZADD', KEYS[8], ARGV[13], id)
redis.call('SADD', KEYS[9], id)
redis.call('LREM', KEYS[6], 1, id)
redis.call('DEL', job .. ':lock')
redis.call('SREM', KEYS[7], id)
changeAdmission(prefix, ARGV[4], function(admission) parkAdmitted(admission, id) end)
return 'waiting'
