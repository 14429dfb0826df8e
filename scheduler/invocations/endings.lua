-- The ends of invocations and of attempts.
--- @include "../store/store.lua"
--- @include "./log.lua"
--- @include "./files.lua"
--- @include "./listing.lua"
--- @include "../quotas/account.lua"
--- @include "../usage/usage.lua"
--- @include "../quotas/limits.lua"
--- @include "../functions/functions.lua"
--- @include "../admission/rules.lua"

-- Ends the wait of a debounced invocation: its delay has passed, or the invocation ends. `record` has the record's fields.
local function leaveDebounce(record)
  redis.call('ZREM', record.prefix .. ':debounced', record.id)
  local id = string.match(redis.call('HGET', record.debounceKey, record.debounceField) or '', '^%S+')
  if id == record.id then
    redis.call('HDEL', record.debounceKey, record.debounceField)
  end
end

-- Ends an invocation's wait for a person: a person answered, the time has passed, or the invocation ends. `record` has the record's fields.
local function leaveQuestion(record)
  redis.call('ZREM', record.questionsKey, record.id)
  redis.call('SREM', record.tenantQuestionsKey, record.id)
end

-- Returns `text` with `by` in place of the first match of `pattern`. `string.gsub` would copy the rest of a long text character by character.
local function replacedIn(text, pattern, by)
  local first, last = string.find(text, pattern)
  if not first then
    return text
  end
  return string.sub(text, 1, first - 1) .. by .. string.sub(text, last + 1)
end

-- The retention of an ended invocation, from the arguments of a script that may end invocations: `record` and `events` in ms; `lines`, the
-- maximum number of lines of the function's log; `times`, the retention of that log, of files and of the result, in ms, separated by spaces.
local function keptFor(now, record, events, lines, times)
  local logMs, filesMs, resultsMs = string.match(times, '^(%d+) (%d+) (%d+)$')
  return {
    now = now,
    recordMs = record,
    eventsMs = events,
    logLines = lines,
    logMs = logMs,
    filesMs = filesMs,
    resultsMs = resultsMs,
    usage = '',
    code = '',
    message = '',
  }
end

-- The first keys and arguments of every script that may end one invocation:
-- KEYS[1] record, [2] events, [3] inbox, [4] deadlines.
-- ARGV[1] id, [2] live channel, [3] inbox channel, [4] now, [5..8] see `keptFor`.
local function endArguments()
  local a = keptFor(ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8])
  a.record, a.events, a.inbox, a.deadlines = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
  a.id, a.live, a.inboxChannel = ARGV[1], ARGV[2], ARGV[3]
  return a
end

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

-- Counts bytes of content that Redis drops at `at` (ms since the epoch). The account counts them in the holder of that minute (see ../quotas/account.lua).
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
  local ofRecord = RECORD_BYTES + tonumber(record.headerBytes or 0)
  local eventBytes = held - ofRecord - released + EVENT_BYTES + #a.data
  holdUntilLater(account, eventBytes + keptInputBytes, a.now + a.eventsMs)
  holdUntilLater(account, ofRecord + #a.message, a.now + a.recordMs)
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

-- METERED_FIELDS of metered.ts: the names of the usage fields, and for each the number of units that Redis counts (such as µs) in one unit of
-- the field (such as ms).
local USAGE_NAMES = {'inputTokens', 'outputTokens', 'cachedTokens', 'gpuMs', 'cpuMs', 'wallMs', 'queuedMs', 'pageSeconds'}
local USAGE_UNITS = {1, 1, 1, 1000, 1000, 1000, 1000, 1000}

-- Returns `data`, the JSON text of an error event, with an added member `usage`: the sum over all attempts that have reported usage.
local function withUsage(record, data)
  local usageBefore, usageNow = unpack(redis.call('HMGET', record, 'usageBefore', 'usageNow'))
  -- Each report sets `usageNow`, so without it there is no `usageBefore` either.
  if not usageNow then
    return data
  end
  local earlier, members = meteredNumbers(usageBefore), {}
  for i, n in ipairs(meteredNumbers(usageNow)) do
    local sum = n + earlier[i]
    if sum > 0 then
      local format = USAGE_UNITS[i] == 1 and '"%s":%.0f' or '"%s":%.3f'
      members[#members + 1] = string.format(format, USAGE_NAMES[i], sum / USAGE_UNITS[i])
    end
  end
  return string.sub(data, 1, -2) .. ',"usage":{' .. table.concat(members, ',') .. '}}'
end

-- Ends an invocation with an error of the platform. The end belongs to the next epoch, so that the runtime of the last attempt can write no more.
-- `a` holds the arguments of endInvocation; `epoch` and `seq` are those of the record; `data` is the error event's JSON text.
local function platformFailure(a, epoch, seq, code, message, data)
  a.epoch = tonumber(epoch) + 1
  a.seq = passLostTail(a, seq) + 1
  a.event = 'error'
  a.data = withUsage(a.record, data)
  a.status = (code == 'cancelled' or code == 'superseded') and 'cancelled' or 'failed'
  a.code = code
  a.message = message
  endInvocation(a, readRecord(a.record))
  settleEnds(a.now)
end

-- Ends an attempt and logs `message`. The invocation does not end: it becomes `queued` in the next epoch.
-- `a` holds the end's arguments; `seq` is the number of the last event. The next attempt gets all messages in the inbox from the first.
local function giveUpAttempt(a, epoch, seq, message)
  local notice = cjson.encode({ level = 'warn', message = message })
  local nextSeq = tonumber(seq) + 1
  redis.call('XADD', a.events, nextSeq .. '-' .. epoch, 'e', 'log', 'd', notice)
  local account, submitter, granted = unpack(redis.call('HMGET', a.record, 'account', 'submitter', 'granted'))
  if account then
    holdBytes(account, 'i:' .. a.id, EVENT_BYTES + #notice)
  end
  if account and granted then
    returnGrant(account, a.id, 0, tonumber(a.now))
  end
  publishLive(a.live, submitter, a.id, epoch .. '-' .. nextSeq .. '\0log\0' .. notice)
  functionLog(a.record, nextSeq, 'log', notice, a.now, a.logLines, a.logMs)
  redis.call('HSET', a.record, 'status', 'queued', 'epoch', tonumber(epoch) + 1, 'seq', nextSeq, 'requeuedAt', a.now)
  redis.call('HDEL', a.record, 'runtimeId', 'token', 'inboxKept', 'inboxKeptBytes', 'shown', 'granted')
end

--- @script "finish"
--[[
  Ends invocations for their running attempts, and writes the attempts' last events. Exactly one terminal event is written to each, even with
  concurrent callers. An end also removes the BullMQ job, which the attempt's runtime holds. A refused end does not affect the others.

  KEYS[1] deadlines (sorted set)
  KEYS[2, 5, ...] records (hashes); KEYS[3, 6, ...] their events (streams); KEYS[4, 7, ...] their inboxes (lists)

  ARGV[1] now, ms
  ARGV[2..5] record, events, lines and times of `keptFor`
  ARGV[6] maximum bytes of all events of the root's family; an error is always accepted
  ARGV[7] retention of learned peaks, ms
  ARGV[8, 9] approximate number of events that a log keeps, and maximum bytes of event data that an invocation may log in all
  ARGV[10...] for each record:
    - id; live channel; inbox channel
    - epoch of the attempt
    - number of the terminal event, larger than that of any event that a reader was shown
    - event: result | error
    - data
    - status: succeeded | failed | cancelled
    - failure code, or ''; failure message, or ''
    - usage as JSON text, or ''
    - usage of the attempt as it is counted (../usage/usage.lua), or ''
    - granted tokens beyond this usage whose use may become known after the end, see `settle`
    - number of the log's last event, as the attempt knows it
    - the peak of the run, pairs of model and number in a JSON list, or ''
    - number of the last event that followers were shown
    - number of the last events, which the log lacks
    - event and data of each of these. The terminal event's message brings followers those that they were not shown

  Returns for each record 1 ended by this call, or by the same call made before; 0 stale epoch (or no such record); -1 ended by another call;
          -2 the family has no room for this result; -6 the last events, or the result together with them, are refused: both store nothing.
          After -6, the caller appends the last events alone and ends the invocation without them; a refusal of either call tells why.
          {-3, number of the log's last event} when that differs from the attempt's.
          {-4, quota, limit, used} the tenant may keep no more bytes in Redis; an error is always accepted.
          {-5, text of the error}.
]]
--- @include "../store/even-when-full.lua"

-- HEAD is the number of arguments before those of the first record, HEAD_OF_END that of a record's arguments before its last events.
local HEAD, HEAD_OF_END = 9, 17
local now, familyMost = ARGV[1], tonumber(ARGV[6])
-- The first number of ARGV[5] is the retention of the function's log.
local bounds = { now = tonumber(now), events = tonumber(ARGV[8]), bytes = tonumber(ARGV[9]), lines = ARGV[4],
  linesMs = string.match(ARGV[5], '^%d+'), familyBytes = familyMost, ahead = 0 }

-- Peaks of the ended runs, in lists by the key under which admission learns the peaks of their version.
local peaks = {}

local function notePeaks(key, text)
  local run, pairsOfPeak = {}, cjson.decode(text)
  for i = 1, #pairsOfPeak, 2 do
    run[pairsOfPeak[i]] = pairsOfPeak[i + 1]
  end
  peaks[key] = peaks[key] or {}
  table.insert(peaks[key], run)
end

-- Ends one invocation; `a` is the argument of endInvocation, `at` the index of the record's first argument.
local function finish(a, record, at)
  local usage, after, peak, shown, count = ARGV[at + 11], ARGV[at + 13], ARGV[at + 14], tonumber(ARGV[at + 15]), tonumber(ARGV[at + 16])
  a.late = tonumber(ARGV[at + 12])
  if not record.status then
    return 0
  end
  if record.status == 'succeeded' or record.status == 'failed' or record.status == 'cancelled' then
    return record.epoch == a.epoch and record.seq == a.seq and 1 or -1
  end
  if record.status ~= 'running' or record.epoch ~= a.epoch then
    return 0
  end
  if tonumber(after) ~= tonumber(record.seq) then
    return {-3, tonumber(record.seq)}
  end

  -- Everything must fit before anything is written.
  local account, bytes, lastBytes = record.account, #a.data + EVENT_BYTES, count * EVENT_BYTES
  for place = at + HEAD_OF_END, at + HEAD_OF_END + 2 * count - 2, 2 do
    lastBytes = lastBytes + #ARGV[place + 1]
  end
  local family, familyBytes = familyOf(a.record, record.rootKey, record.familyBytes)
  if a.event == 'result' and familyBytes + lastBytes + bytes > familyMost then
    return count > 0 and -6 or -2
  end
  -- The account's `bytes` in Redis lack the changes that earlier ends of this call have gathered.
  local earlier = account and gatheredSum(accountKey(account), 'bytes')
  local refusal = a.event == 'result' and account and bytesRefusal(account, earlier + lastBytes + bytes, tonumber(now))
  if refusal then
    return count > 0 and -6 or {-4, refusal[1], refusal[2], refusal[3] + earlier}
  end
  if count > 0 then
    -- Without a channel, `appendEvents` publishes nothing: `endInvocation` publishes the events of `a.before` with the terminal event.
    refusal = appendEvents({ record = a.record, events = a.events, channel = '', firstSeq = tonumber(after) + 1, first = at + HEAD_OF_END,
      count = count }, record, bounds, {})
    if refusal then
      return -6
    end
    for i = math.max(1, shown - tonumber(after) + 1), count do
      local place = at + HEAD_OF_END + 2 * (i - 1)
      a.before = (a.before or '') .. a.epoch .. '-' .. (tonumber(after) + i) .. '\0' .. ARGV[place] .. '\0' .. ARGV[place + 1] .. '\0'
    end
    family, familyBytes = familyOf(a.record, record.rootKey, record.familyBytes)
  end
  familyBytes = familyBytes + bytes
  if family == a.record then
    record.familyBytes = familyBytes
  else
    redis.call('HSET', family, 'familyBytes', familyBytes)
  end
  local changed = {}
  a.added = usageChange(changed, record.usageEpoch, record.usageNow, record.usageBefore, a.epoch, usage)
  for i = 1, #changed, 2 do
    record[changed[i]] = changed[i + 1]
  end
  if peak ~= '' and record.learnedKey then
    notePeaks(record.learnedKey, peak)
  end
  a.holder = record.runtimeId
  endInvocation(a, record)
  return 1
end

local replies, at = {}, HEAD + 1
for i = 1, (#KEYS - 1) / 3 do
  local a = keptFor(now, ARGV[2], ARGV[3], ARGV[4], ARGV[5])
  a.deadlines, a.record, a.events, a.inbox = KEYS[1], KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  a.id, a.live, a.inboxChannel, a.epoch, a.seq, a.event, a.data, a.status, a.code, a.message, a.usage = unpack(ARGV, at, at + 10)
  local ok, reply = pcall(finish, a, readRecord(a.record), at)
  replies[i] = ok and reply or {-5, type(reply) == 'table' and reply.err or tostring(reply)}
  at = at + HEAD_OF_END + 2 * tonumber(ARGV[at + HEAD_OF_END - 1])
end
for key, runs in pairs(peaks) do
  isolated(learnPeaks, key, runs, ARGV[7])
end
settleEnds(now)
return replies

--- @script "fail"
--[[
  Ends an invocation with an error of the platform, for example when the invocation's runtime has died, or when the
  invocation's deadline has passed. The invocation gets the next epoch, so that its last runtime can write no more.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)

  ARGV[1..8] see above
  ARGV[9] failure code
  ARGV[10] failure message
  ARGV[11] data of the error event
  ARGV[12] a runtime: the script leaves running attempts of all other runtimes alone; '' for attempts of any runtime

  Returns {tenant, function} when this call ended it, -1 ended before, 0 no such record, -2 left alone.
]]
--- @include "../store/even-when-full.lua"

local status, epoch, seq, runtimeId, tenant, fn = unpack(redis.call('HMGET', KEYS[1],
  'status', 'epoch', 'seq', 'runtimeId', 'tenant', 'function'))
if not status then
  redis.call('ZREM', KEYS[4], ARGV[1])
  return 0
end
if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
  return -1
end
if ARGV[12] ~= '' and status == 'running' and runtimeId ~= ARGV[12] then
  return -2
end
platformFailure(endArguments(), epoch, seq, ARGV[9], ARGV[10], ARGV[11])
return {tenant or '', fn or ''}

--- @script "cancel"
--[[
  Cancels an invocation: at once while it is queued or waits for a person, else by a request to the runtime that owns it.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)
  KEYS[5] the reply to this call, see ../store/store.lua

  ARGV[1..8] see above
  ARGV[9] reason
  ARGV[10] data of the error event

  Returns {'cancelled'}, {'requested'} (the runtime was told), {'ended'} or {'unknown'}. The record keeps the first reason.
]]
--- @include "../store/even-when-full.lua"

local answered = answeredBefore(KEYS[5])
if answered then
  return answered
end
local status, epoch, seq = unpack(redis.call('HMGET', KEYS[1], 'status', 'epoch', 'seq'))
if not status then
  return {'unknown'}
end
if status == 'running' then
  redis.call('HSETNX', KEYS[1], 'cancelReason', ARGV[9])
  -- Store the cancel in the same step, so that the invocation's end finds and removes it. Redis keeps stored cancels for as long as events.
  local cancels, channel = unpack(redis.call('HMGET', KEYS[1], 'cancelsKey', 'cancelChannel'))
  if cancels then
    redis.call('HSET', cancels, ARGV[1], ARGV[9])
    redis.call('PEXPIRE', cancels, ARGV[6])
    redis.call('PUBLISH', channel, ARGV[1] .. '\0' .. ARGV[9])
  end
  return {'requested'}
end
if status ~= 'queued' and status ~= 'waiting' then
  return {'ended'}
end
redis.call('HSETNX', KEYS[1], 'cancelReason', ARGV[9])
platformFailure(endArguments(), epoch, seq, 'cancelled', ARGV[9], ARGV[10])
return answerOnce(KEYS[5], {'cancelled'})

--- @script "tell"
--[[
  Tells a runtime of a cancel for a job that the runtime holds and has not begun.

  KEYS[1] the runtime's cancels (hash)
  ARGV[1] channel on which the runtime hears of cancels
  ARGV[2] id
  ARGV[3] reason
  ARGV[4] retention of the runtime's list of cancels, ms

  Returns 1.
]]
--- @include "../store/even-when-full.lua"
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2] .. '\0' .. ARGV[3])
return 1

--- @script "requeue"
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

  ARGV[1..8] see above
  ARGV[9] epoch of the attempt
  ARGV[10] number of the log event that states the cause
  ARGV[11] cause
  ARGV[12] attempts that a restartable invocation gets
  ARGV[13] usage of the attempt as it is counted, see ../usage/usage.lua, or ''
  ARGV[14] maximum pages that the attempt held or asked for, JSON by model, or '': the next attempt is expected to hold at least as many
  ARGV[15] '1' when the attempt ended for lack of memory: the next attempt waits until a GPU host has the pages of ARGV[14], see ../../admission

  Returns 'requeued' by this call, or by the same call made before; 'not-restartable'; 'no-attempts-left'; 'cancelled' when a cancel is in
          progress (after these three, the attempt is still the running one); 'stale' epoch (or no such record); 'ended'.
          {-3, number of the log's last event} when ARGV[10] is not the next number.
]]
--- @include "../store/even-when-full.lua"

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

--- @script "settle"
--[[
  Counts usage that became known after an attempt ended its invocation. The record stores the total, and the counters add the increase. Returns
  the tokens that the end kept granted for this usage.

  KEYS[1] record (hash)

  ARGV[1] epoch of the attempt
  ARGV[2] its usage in all, see ../usage/usage.lua
  ARGV[3] now, ms
  ARGV[4] prefix of the keys of the tenant's usage
  ARGV[5] id of the invocation, or '' when its end kept no tokens granted

  Returns 1 counted, by this call or the same one made before; 0 the attempt did not end the invocation, or the record is gone.
]]

local record = KEYS[1]
local status, epoch, fn = unpack(redis.call('HMGET', record, 'status', 'epoch', 'function'))
if epoch ~= ARGV[1] or not (status == 'succeeded' or status == 'failed' or status == 'cancelled') then
  return 0
end
local added = newUsage(record, epoch, ARGV[2])
if next(added) then
  -- The counted usage now exceeds that of the terminal event. `totalUsage` of metered.ts reads the counted usage only from a record with
  -- `usageBefore`, so set it to zeros if the record has none.
  redis.call('HSETNX', record, 'usageBefore', string.rep('0 ', METERED - 1) .. '0')
  addUsage(ARGV[4], fn, tonumber(ARGV[3]), added)
end
if ARGV[5] ~= '' then
  returnGrant(ARGV[4], ARGV[5], 0, tonumber(ARGV[3]))
end
return 1
