--- @include "./function-log.lua"
--- @include "./file-usage.lua"
--- @include "./listing.lua"
--- @include "../../../quotas/scripts/include/account.lua"
--- @include "../../../usage/scripts/include/metering.lua"
--- @include "../../../usage/scripts/include/count-end.lua"
--- @include "../../../functions/scripts/include/unfinished.lua"
--- @include "../../../admission/scripts/include/admission.lua"

-- Record fields that are needed only until the end. They are most of a record's bytes, and records are kept for long.
local UNTIL_THE_END = {'token', 'cancelsKey', 'cancelChannel', 'logs', 'logsChannel', 'fileUsageKey', 'fileExpiriesKey', 'storedUsageKey',
  'listing', 'idempotencyKey', 'idempotencyMs', 'webhooksKey', 'webhooksChannel', 'childrenKey', 'unfinishedKey', 'functionKey', 'account',
  'learnedKey', 'declaredPages', 'firstModel', 'leastPages', 'shortAt', 'bytes', 'inboxClosed', 'inboxKept',
  'inboxKeptBytes', 'inboxCut', 'inboxBytes', 'inputBytes', 'requeuedAt', 'shown'}

-- Gives the bytes of the record, the events and the outcome their expiry, and releases the bytes of the input and the unread messages.
local function settleBytes(record, account, a, outcomeBytes)
  local held = account and releaseBytes(account, 'i:' .. a.id)
  if not held then
    return
  end
  local input, inbox = unpack(redis.call('HMGET', record, 'inputBytes', 'inboxBytes'))
  local events = held - RECORD_BYTES - tonumber(input or 0) - tonumber(inbox or 0) + EVENT_BYTES + #a.data
  holdUntil(account, events, a.now + a.eventsMs)
  holdUntil(account, RECORD_BYTES, a.now + a.recordMs)
  if outcomeBytes > 0 then
    holdUntil(account, outcomeBytes, a.now + a.resultsMs)
  end
end

-- Ends an invocation that has not ended: writes its one terminal event and its final record, and sets its retention.
-- KEYS[1] record, KEYS[2] events, KEYS[3] inbox, KEYS[4] deadlines. `a` holds id, live, inboxChannel, epoch, seq, event, data, status,
-- code, message, usage, now, recordMs, eventsMs, logLines, logMs, filesMs, resultsMs, and optionally `added`, the increase of the usage
-- counters.
local function endInvocation(a)
  local account, fn, parent, unfinished, submittedAt, listing, idempotencyKey, idempotencyMs, webhooks, webhooksChannel, prefix, tenant, children,
    cancels, files, contents = unpack(redis.call('HMGET', KEYS[1], 'account', 'function', 'parent', 'unfinishedKey', 'submittedAt', 'listing',
    'idempotencyKey', 'idempotencyMs', 'webhooksKey', 'webhooksChannel', 'prefix', 'tenant', 'childrenKey', 'cancelsKey', 'filesKey',
    'fileContentsKey'))
  redis.call('XADD', KEYS[2], a.seq .. '-' .. a.epoch, 'e', a.event, 'd', a.data)
  redis.call('HSET', KEYS[1], 'status', a.status, 'epoch', a.epoch, 'seq', a.seq, 'endedAt', a.now, 'code', a.code, 'message', a.message,
    'usage', a.usage)
  if account then
    countEnd(account, fn, not parent, a.status, a.code, tonumber(a.now), a.added or {})
  end
  redis.call('ZREM', KEYS[4], a.id)
  redis.call('DEL', KEYS[3])
  if unfinished then
    removeUnfinished(unfinished, a.id)
  end
  redis.call('PEXPIRE', KEYS[1], a.recordMs)
  redis.call('PEXPIRE', KEYS[2], a.eventsMs)
  -- The outcome may be kept for longer than the events before it.
  local outcome = tonumber(a.resultsMs) > tonumber(a.eventsMs) and a.event .. ' ' .. a.data
  if outcome then
    redis.call('SET', KEYS[1] .. ':outcome', outcome, 'PX', a.resultsMs)
  end
  settleBytes(KEYS[1], account, a, outcome and EVENT_BYTES + #outcome or 0)
  if listing then
    listEnded(listing, fn, a.id, submittedAt, a.recordMs)
  end
  if idempotencyKey then
    redis.call('PEXPIRE', idempotencyKey, idempotencyMs)
  end
  -- In the same step, so that every end is notified.
  if webhooks then
    redis.call('HSET', KEYS[1], 'webhookStatus', 'pending', 'webhookNextAt', a.now)
    redis.call('ZADD', webhooks, a.now, a.id)
    redis.call('PUBLISH', webhooksChannel, '')
  end
  -- Leave the line, or free the admitted capacity; a child (without `prefix`) was never admitted.
  if prefix then
    leaveAdmission(prefix, tenant, a.id, a.now)
  end
  -- Remove the child and the cancel from their runtime's lists, and let the files expire; the record holds the keys.
  if children then
    redis.call('HDEL', children, a.id)
  end
  if cancels then
    redis.call('HDEL', cancels, a.id)
  end
  if files then
    redis.call('PEXPIRE', files, a.filesMs)
    redis.call('PEXPIRE', contents, a.filesMs)
    expireFiles(KEYS[1], a.id, tonumber(a.now) + tonumber(a.filesMs))
  end
  if a.event == 'error' then
    functionLog(KEYS[1], a.seq, a.event, a.data, a.now, a.logLines, a.logMs)
  end
  redis.call('PUBLISH', a.live, a.epoch .. '-' .. a.seq .. '\0' .. a.event .. '\0' .. a.data)
  redis.call('PUBLISH', a.inboxChannel, 'closed')
  redis.call('HDEL', KEYS[1], unpack(UNTIL_THE_END))
end
