-- Questions to clients, and their answers.

--- @script "ask"
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

  ARGV[1..8] see endings.lua
  ARGV[9] epoch of the attempt
  ARGV[10] number of the event `question`
  ARGV[11] 'question', the event's name; appendEvents reads the name and the data from ARGV
  ARGV[12] data of that event, JSON text
  ARGV[13] end of the wait, ms
  ARGV[14] state for the next attempt, a JSON string
  ARGV[15] token of the last message that the attempt has handled, 16 bytes, or '' for none
  ARGV[16] usage of the attempt as it is counted, see ../usage/usage.lua
  ARGV[17..19] approximate number of events that a log keeps, maximum bytes of their data, maximum bytes of the family's events; see `append` of log.lua
  ARGV[20] maximum messages that wait in an inbox, besides the kept ones

  Returns 'waiting' when this call, or the same call made before, has ended the attempt. After any other reply, nothing has changed:
          'cancelled' when a cancel is in progress; 'stale' for another epoch, or no such record; 'ended'; 'full' when the log has no room for the
          event; {-3, number of the log's last event} when the event's number is not the next one; {-4, quota, limit, used} when the tenant may
          keep no more bytes in Redis.
]]
--- @include "./endings.lua"
--- @include "./log.lua"
--- @include "../quotas/account.lua"

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

--- @script "answer"
--[[
  Answers the question of a waiting invocation, or records that its time has passed. The invocation goes into its tenant's queue for another
  attempt. Exactly one call answers a question.

  KEYS[1] record (hash)
  KEYS[2] deadlines (sorted set)
  KEYS[3] questions (sorted set)
  KEYS[4] BullMQ job (hash)
  KEYS[5] arrivals (counter)
  KEYS[6] the reply to this call, see ../store/store.lua

  ARGV[1] id
  ARGV[2] now, ms
  ARGV[3] number of the question's event, or '' for any
  ARGV[4] answer as the next attempt gets it, JSON text: `answer` of ../admission/job.ts
  ARGV[5] '1' for an answer of a person, '0' when the time has passed

  Returns 1 when the invocation goes on;
          0 when it does not wait for an answer to that question (any more), when a person's answer comes after the end of the wait, or when ARGV[5]
            is '0' before that end;
          -1 for an unknown invocation;
          {-4, quota, limit, used} when the tenant may keep no more bytes in Redis.
]]
--- @include "../store/store.lua"
--- @include "../quotas/account.lua"
--- @include "../admission/rules.lua"
--- @include "./endings.lua"

local answered = answeredBefore(KEYS[6])
if answered then
  return answered
end
local record, job, id, now = KEYS[1], KEYS[4], ARGV[1], tonumber(ARGV[2])
local status, seq, prefix, tenant, account, askedAt, submittedAt, deadlineMs, arrival, tenantQuestionsKey = unpack(redis.call('HMGET', record,
  'status', 'seq', 'prefix', 'tenant', 'account', 'askedAt', 'submittedAt', 'deadlineMs', 'arrival', 'tenantQuestionsKey'))
local due = tonumber(redis.call('ZSCORE', KEYS[3], id) or nil)
if not status then
  redis.call('ZREM', KEYS[3], id)
  return -1
end
if status ~= 'waiting' then
  redis.call('ZREM', KEYS[3], id)
  return 0
end
-- An answer of a person counts only before the end of the wait, and the expiry only after it.
local passed = due and due <= now
if (ARGV[3] ~= '' and ARGV[3] ~= seq) or (ARGV[5] == '0') ~= (passed or false) then
  return 0
end
local refusal = ARGV[5] == '1' and bytesRefusal(account, #ARGV[4], now)
if refusal then
  return {-4, unpack(refusal)}
end
leaveQuestion({ id = id, questionsKey = KEYS[3], tenantQuestionsKey = tenantQuestionsKey })
holdBytes(account, 'i:' .. id, #ARGV[4])
redis.call('HINCRBY', record, 'questionBytes', #ARGV[4])
-- The wait does not count toward the deadline, which therefore moves back. The wait earns no place in the queue before others, so the invocation
-- gets a new arrival. An invocation with latency targets keeps its arrival, which `create` of submission.lua has moved ahead.
local later = tonumber(deadlineMs) + now - tonumber(askedAt)
if redis.call('HEXISTS', record, 'latency') == 0 then
  arrival = redis.call('INCR', KEYS[5])
end
local data = redis.call('HGET', job, 'data')
if data then
  data = replacedIn(data, '^{"arrival":%d+', '{"arrival":' .. arrival)
  -- The input is a JSON string, in which quotation marks are escaped. So only the job's own field matches.
  data = replacedIn(data, '"deadlineMs":%d+', '"deadlineMs":' .. string.format('%.0f', later))
  local state = redis.call('HGET', job, 'state') or '""'
  redis.call('HSET', job, 'data', data, 'resumption', '{"state":' .. state .. ',"answer":' .. ARGV[4] .. '}')
  redis.call('HDEL', job, 'state')
end
-- With 0 `attempts`, an invocation that is not restartable may begin once more.
redis.call('HSET', record, 'status', 'queued', 'attempts', 0, 'arrival', arrival, 'deadlineMs', string.format('%.0f', later), 'requeuedAt', now)
redis.call('HDEL', record, 'question', 'askedAt')
redis.call('ZADD', KEYS[2], tonumber(submittedAt) + later, id)
changeAdmission(prefix, ARGV[2], function(a) enterQueue(a, tenant, id, arrival) end)
return answerOnce(KEYS[6], 1)
