--- @include "../../../quotas/scripts/include/account.lua"
-- A log is cut once it exceeds its bound by this many lines, or its first line is too old.
local LINES_CUT_AT_ONCE = 64

-- Drops the oldest lines past those bounds, and releases their bytes. In the list of fields and values that `functionLog` writes for a line, the
-- sixth text is the time and the tenth the data.
local function cutLog(account, holder, logs, keepLines, oldestMs)
  local excess = redis.call('XLEN', logs) - keepLines
  local first = redis.call('XRANGE', logs, '-', '+', 'COUNT', 1)[1]
  if excess < LINES_CUT_AT_ONCE and tonumber(first[2][6]) >= oldestMs then
    return
  end
  local freed = 0
  for i, line in ipairs(redis.call('XRANGE', logs, '-', '+', 'COUNT', math.max(excess, LINES_CUT_AT_ONCE))) do
    if i > excess and tonumber(line[2][6]) >= oldestMs then
      break
    end
    freed = freed + LOG_LINE_BYTES + #line[2][10]
    redis.call('XDEL', logs, line[1])
  end
  holdBytes(account, holder, -freed)
end

-- Copies an event into the log of its function. The record holds the log's key.
local function functionLog(record, seq, event, data, now, keepLines, keepMs)
  local id, logs, channel, account, fn = unpack(redis.call('HMGET', record, 'id', 'logs', 'logsChannel', 'account', 'function'))
  if not logs then
    return
  end
  local holder = 'l:' .. fn
  -- An expired log begins anew, so release its bytes.
  if redis.call('EXISTS', logs) == 0 then
    releaseBytes(account, holder)
  end
  redis.call('XADD', logs, '*', 'i', id, 's', seq, 't', now, 'e', event, 'd', data)
  holdBytes(account, holder, LOG_LINE_BYTES + #data)
  cutLog(account, holder, logs, tonumber(keepLines), math.max(0, tonumber(now) - tonumber(keepMs)))
  redis.call('PEXPIRE', logs, keepMs)
  endHolder(account, holder, tonumber(now) + tonumber(keepMs))
  redis.call('PUBLISH', channel, '')
end
