--- @include "../../../store/scripts/gather.lua"
--- @include "./function-log.lua"
--- @include "./file-usage.lua"
--- @include "./leave-debounce.lua"
--- @include "./leave-question.lua"
--- @include "./listing.lua"
--- @include "./publish-live.lua"
--- @include "../../../quotas/scripts/include/account.lua"
--- @include "../../../usage/scripts/include/metering.lua"
--- @include "../../../quotas/scripts/include/grants.lua"
--- @include "../../../usage/scripts/include/count-end.lua"
--- @include "../../../functions/scripts/include/unfinished.lua"
--- @include "../../../admission/scripts/include/admission.lua"

-- Record fields that are needed only until the end. They are most of a record's bytes, and records are kept for long.
local UNTIL_THE_END = {'token', 'cancelsKey', 'cancelChannel', 'logs', 'logsChannel', 'fileUsageKey', 'fileExpiriesKey', 'storedUsageKey',
  'listing', 'idempotencyKey', 'idempotencyMs', 'webhooksKey', 'webhooksChannel', 'childrenKey', 'unfinishedKey', 'functionKey', 'account',
  'learnedKey', 'declaredPages', 'firstModel', 'leastPages', 'shortAt', 'bytes', 'inboxClosed', 'inboxKept',
  'inboxKeptBytes', 'inboxCut', 'inboxBytes', 'inputBytes', 'headerBytes', 'requeuedAt', 'shown', 'submitter',
  'concurrencyKey', 'concurrencyLimit', 'debounceKey', 'debounceField', 'notBefore',
  'granted', 'question', 'askedAt', 'askedEpoch', 'questionBytes', 'questionsKey', 'tenantQuestionsKey'}

-- Invocations that this script has ended and not yet taken out of admission: lists of {tenant, id, runtime that holds the job}, by the prefix of
-- their keys.
local endedByPrefix = {}

-- The fields of a record by name.
local function readRecord(key)
  local record, fields = {}, redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    record[fields[i]] = fields[i + 1]
  end
  return record
end

-- Replaces a record by its final fields. Cheaper than to drop most of its fields one by one.
local function writeFinalRecord(key, record)
  for _, field in ipairs(UNTIL_THE_END) do
    record[field] = nil
  end
  local fields = {}
  for field, value in pairs(record) do
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  redis.call('DEL', key)
  redis.call('HSET', key, unpack(fields))
end

-- Counts bytes of content that Redis drops at `at` (ms since the epoch). The account counts them in the holder of that minute (see account.lua).
local function holdUntilLater(account, bytes, at)
  local step = math.ceil(at / LIFETIME_STEP_MS)
  local holder = '@' .. string.format('%.0f', step)
  addLater(accountKey(account), holder, bytes)
  addLater(accountKey(account), 'bytes', bytes)
  gather('ZADD', account .. ':redis-ends', step * LIFETIME_STEP_MS, holder)
end

-- Maximum bytes of a job whose input outlives the invocation, so that a client can invoke with it again.
local KEPT_INPUT_BYTES = 16384

-- Keeps the job of an ended invocation for as long as its events, since the job has the input. A child has no job, and its record no `prefix`.
-- Returns the kept bytes.
local function keepInput(a, record)
  local inputBytes = tonumber(record.inputBytes or 0)
  if not record.prefix or inputBytes == 0 or inputBytes > KEPT_INPUT_BYTES then
    return 0
  end
  local job = redis.call('HGET', record.prefix .. ':bull:invocations:' .. a.id, 'data')
  if not job then
    return 0
  end
  redis.call('SET', a.record .. ':input', job, 'PX', a.eventsMs)
  return #job
end

-- Removes the invocation's holder from the account, and counts what stays until it expires: the record with its failure's message and the texts
-- of its headers, the events,
-- the kept input and the outcome. The bytes of the job, the inbox and the question are released now. The holder's other bytes are those of the
-- record and of the events.
local function settleBytes(a, record, outcomeBytes, keptInputBytes)
  local account, holder = record.account, 'i:' .. a.id
  local held = account and tonumber(redis.call('HGET', accountKey(account), holder) or nil)
  if not held then
    return
  end
  gather('HDEL', accountKey(account), holder)
  addLater(accountKey(account), 'bytes', -held)
  local released = tonumber(record.inputBytes or 0) + tonumber(record.inboxBytes or 0) + tonumber(record.questionBytes or 0)
  local recordBytes = RECORD_BYTES + tonumber(record.headerBytes or 0)
  local eventBytes = held - recordBytes - released + EVENT_BYTES + #a.data
  holdUntilLater(account, eventBytes + keptInputBytes, a.now + a.eventsMs)
  holdUntilLater(account, recordBytes + #a.message, a.now + a.recordMs)
  if outcomeBytes > 0 then
    holdUntilLater(account, outcomeBytes, a.now + a.resultsMs)
  end
end

-- Ends an invocation that has not ended: writes its one terminal event and its final record, and sets its retention. The script calls
-- `settleEnds` after its last end. `a` holds the keys record, events, inbox and deadlines, and id, live, inboxChannel, epoch, seq, event,
-- data, status, code, message, usage, now, recordMs, eventsMs, logLines, logMs, filesMs, resultsMs, and optionally `added`, the increase of
-- the usage counters, `late`, granted tokens whose use may become known after the end, `before`, events that followers get with the terminal one, and `holder`, the runtime that holds the job.
-- `record` has the record's fields; `endInvocation` changes it.
local function endInvocation(a, record)
  redis.call('XADD', a.events, a.seq .. '-' .. a.epoch, 'e', a.event, 'd', a.data)
  if record.account then
    countEnd(record.account, record['function'], not record.parent, a.status, a.code, tonumber(a.now), a.added or {})
  end
  if record.granted and record.account then
    returnGrant(record.account, a.id, a.late or 0, tonumber(a.now))
  end
  gather('ZREM', a.deadlines, a.id)
  redis.call('DEL', a.inbox)
  if record.unfinishedKey then
    removeUnfinished(record.unfinishedKey, a.id)
  end
  if record.concurrencyKey then
    gather('SREM', record.concurrencyKey, a.id)
  end
  if record.debounceKey then
    leaveDebounce(record)
  end
  if record.questionsKey then
    leaveQuestion(record)
  end
  if record.latency then
    gather('SREM', record.account .. ':latency', a.id)
  end
  redis.call('PEXPIRE', a.events, a.eventsMs)
  -- The outcome may be kept for longer than the events before it.
  local outcome = tonumber(a.resultsMs) > tonumber(a.eventsMs) and a.event .. ' ' .. a.data
  if outcome then
    redis.call('SET', a.record .. ':outcome', outcome, 'PX', a.resultsMs)
  end
  settleBytes(a, record, outcome and EVENT_BYTES + #outcome or 0, keepInput(a, record))
  if record.listing then
    listEnded(record.listing, record['function'], a.id, record.submittedAt, a.recordMs)
  end
  if record.idempotencyKey then
    redis.call('PEXPIRE', record.idempotencyKey, record.idempotencyMs)
  end
  -- Register the webhook in the same step, so that no end goes without its notification.
  if record.webhooksKey then
    record.webhookStatus, record.webhookNextAt = 'pending', a.now
    redis.call('ZADD', record.webhooksKey, a.now, a.id)
    redis.call('PUBLISH', record.webhooksChannel, '')
  end
  -- A child was never admitted; its record has no `prefix`.
  if record.prefix then
    endedByPrefix[record.prefix] = endedByPrefix[record.prefix] or {}
    table.insert(endedByPrefix[record.prefix], { record.tenant, a.id, a.holder })
  end
  -- Remove the child and the cancel from their runtime's lists, and let the files expire; the record holds the keys.
  if record.childrenKey then
    gather('HDEL', record.childrenKey, a.id)
  end
  if record.cancelsKey then
    gather('HDEL', record.cancelsKey, a.id)
  end
  if record.filesKey then
    redis.call('PEXPIRE', record.filesKey, a.filesMs)
    redis.call('PEXPIRE', record.fileContentsKey, a.filesMs)
    expireFiles(a.record, a.id, tonumber(a.now) + tonumber(a.filesMs))
  end
  if a.event == 'error' then
    functionLog(a.record, a.seq, a.event, a.data, a.now, a.logLines, a.logMs)
  end
  for field, value in pairs({ status = a.status, epoch = a.epoch, seq = a.seq, endedAt = a.now, code = a.code, message = a.message,
    usage = a.usage }) do
    record[field] = value
  end
  if a.event == 'result' then
    record.resultBytes = #a.data
  end
  local submitter = record.submitter
  writeFinalRecord(a.record, record)
  redis.call('PEXPIRE', a.record, a.recordMs)
  publishLive(a.live, submitter, a.id, (a.before or '') .. a.epoch .. '-' .. a.seq .. '\0' .. a.event .. '\0' .. a.data)
  redis.call('PUBLISH', a.inboxChannel, 'closed')
end

-- After the last end of a script: counts the ends, takes the invocations out of their queues or frees their capacity, and admits others.
local function settleEnds(now)
  countEnds(tonumber(now))
  runGathered()
  for prefix, ended in pairs(endedByPrefix) do
    changeAdmission(prefix, now, function(a)
      for _, one in ipairs(ended) do
        leaveAdmission(a, unpack(one))
      end
    end)
  end
  endedByPrefix = {}
end
