-- Copies an event into the log of its function. The record says which log that is.
local function functionLog(record, seq, event, data, now, keepLines, keepMs)
  local id, logs, channel = unpack(redis.call('HMGET', record, 'id', 'logs', 'logsChannel'))
  if not logs then
    return
  end
  redis.call('XADD', logs, 'MAXLEN', '~', keepLines, '*', 'i', id, 's', seq, 't', now, 'e', event, 'd', data)
  redis.call('XTRIM', logs, 'MINID', '~', string.format('%.0f', math.max(0, tonumber(now) - tonumber(keepMs))))
  redis.call('PEXPIRE', logs, keepMs)
  redis.call('PUBLISH', channel, '')
end
