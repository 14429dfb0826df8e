-- Ends an attempt and logs `message`. The invocation does not end: it becomes `queued` in the next epoch. Include after end-invocation.lua.
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
