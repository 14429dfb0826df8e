--[[
  Answers the question of a waiting invocation, or records that its time has passed. The invocation goes into its tenant's queue for another
  attempt. Exactly one call answers a question.

  KEYS[1] record (hash)
  KEYS[2] deadlines (sorted set)
  KEYS[3] questions (sorted set)
  KEYS[4] BullMQ job (hash)
  KEYS[5] arrivals (counter)
  KEYS[6] the reply to this call, see ../../store/scripts/once.lua

  ARGV[1] id
  ARGV[2] now, ms
  ARGV[3] number of the question's event, or '' for any
  ARGV[4] answer as the next attempt gets it, JSON text: `answer` of ../../admission/job.ts
  ARGV[5] '1' for an answer of a person, '0' when the time has passed

  Returns 1 when the invocation goes on;
          0 when it does not wait for an answer to that question (any more), when a person's answer comes after the end of the wait, or when ARGV[5]
            is '0' before that end;
          -1 for an unknown invocation;
          {-4, quota, limit, used} when the tenant may keep no more bytes in Redis.
]]
--- @include "../../store/scripts/once.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"
--- @include "../../admission/scripts/include/admission.lua"
--- @include "./include/leave-question.lua"
--- @include "./include/replaced.lua"

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
-- gets a new arrival. An invocation with latency targets keeps its arrival, which create.lua has moved ahead.
local later = tonumber(deadlineMs) + now - tonumber(askedAt)
if redis.call('HEXISTS', record, 'latency') == 0 then
  arrival = redis.call('INCR', KEYS[5])
end
local data = redis.call('HGET', job, 'data')
if data then
  data = replaced(data, '^{"arrival":%d+', '{"arrival":' .. arrival)
  -- The input is a JSON string, in which quotation marks are escaped. So only the job's own field matches.
  data = replaced(data, '"deadlineMs":%d+', '"deadlineMs":' .. string.format('%.0f', later))
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
