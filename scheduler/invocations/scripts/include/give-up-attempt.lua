-- Ends an attempt but not its invocation: queues it again in the next epoch, and logs a message. Include after end-invocation.lua.
-- `a` holds the end's arguments; `seq` is the number of the last event. The next attempt gets all messages from the first.
local function giveUpAttempt(a, epoch, seq, message)
  local notice = cjson.encode({ level = 'warn', message = message })
  local nextSeq = tonumber(seq) + 1
  redis.call('XADD', KEYS[2], nextSeq .. '-' .. epoch, 'e', 'log', 'd', notice)
  local account = redis.call('HGET', KEYS[1], 'account')
  if account then
    holdBytes(account, 'i:' .. a.id, EVENT_BYTES + #notice)
  end
  redis.call('PUBLISH', a.live, epoch .. '-' .. nextSeq .. '\0log\0' .. notice)
  functionLog(KEYS[1], nextSeq, 'log', notice, a.now, a.logLines, a.logMs)
  redis.call('HSET', KEYS[1], 'status', 'queued', 'epoch', tonumber(epoch) + 1, 'seq', nextSeq, 'requeuedAt', a.now)
  redis.call('HDEL', KEYS[1], 'runtimeId', 'token', 'inboxKept', 'inboxKeptBytes', 'shown')
end
