--- @include "./function-log.lua"
--- @include "./file-usage.lua"

-- Ends an invocation that has not ended: its one terminal event, its final record, its retention.
-- KEYS[1] record, KEYS[2] events, KEYS[3] inbox, KEYS[4] deadlines. `a` names the values:
-- id, live, inboxChannel, epoch, seq, event, data, status, code, message, usage, now, recordMs, eventsMs, logLines, logMs.
local function endInvocation(a)
  redis.call('XADD', KEYS[2], a.seq .. '-0', 'e', a.event, 'd', a.data)
  redis.call('HSET', KEYS[1], 'status', a.status, 'epoch', a.epoch, 'seq', a.seq, 'endedAt', a.now, 'code', a.code, 'message', a.message,
    'usage', a.usage)
  redis.call('ZREM', KEYS[4], a.id)
  redis.call('DEL', KEYS[3])
  redis.call('PEXPIRE', KEYS[1], a.recordMs)
  redis.call('PEXPIRE', KEYS[2], a.eventsMs)
  -- It may have waited for its turn until now; a child never did.
  local waiting = redis.call('HGET', KEYS[1], 'waitingKey')
  if waiting then
    redis.call('ZREM', waiting, a.id)
  end
  -- A child is listed as its runtime's until here, as is a cancel, and files live as long as events: the record says where they are.
  local children, cancels, files, contents = unpack(redis.call('HMGET', KEYS[1], 'childrenKey', 'cancelsKey', 'filesKey', 'fileContentsKey'))
  if children then
    redis.call('HDEL', children, a.id)
  end
  if cancels then
    redis.call('HDEL', cancels, a.id)
  end
  if files then
    redis.call('PEXPIRE', files, a.eventsMs)
    redis.call('PEXPIRE', contents, a.eventsMs)
    expireFiles(KEYS[1], a.id, tonumber(a.now) + tonumber(a.eventsMs))
  end
  if a.event == 'error' then
    functionLog(KEYS[1], a.seq, a.event, a.data, a.now, a.logLines, a.logMs)
  end
  redis.call('PUBLISH', a.live, a.seq .. '\0' .. a.event .. '\0' .. a.data)
  redis.call('PUBLISH', a.inboxChannel, 'closed')
end
