-- The events of an invocation and the log of its function.
--- @include "../quotas/account.lua"
--- @include "../store/store.lua"
--- @include "../usage/usage.lua"

-- Publishes events of an invocation: on its live channel, and on the channel `submitter` of the process that submitted and follows it, if any.
local function publishLive(live, submitter, id, payload)
  redis.call('PUBLISH', live, payload)
  if submitter then
    redis.call('PUBLISH', submitter, id .. '\0' .. payload)
  end
end

-- Returns the key of the record that counts the bytes of an invocation's family, and these bytes. It is the record of the root, the topmost
-- ancestor; when that is gone, the invocation's own record counts. `record` is the invocation's record; `root` and `own` are its fields `rootKey`
-- (a root has none) and `familyBytes`.
local function familyOf(record, root, own)
  if root and redis.call('EXISTS', root) == 1 then
    return root, tonumber(redis.call('HGET', root, 'familyBytes') or 0)
  end
  return record, tonumber(own or 0)
end

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

-- A log is cut once it exceeds its bound by this many events.
local EVENTS_CUT_AT_ONCE = 128

-- Drops the entries whose events all precede the newest `keep`; `last` is the newest event's number. Returns the freed bytes.
local function cutEvents(events, last, keep)
  local oldest = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
  if tonumber(string.match(oldest[1], '^%d+')) > last - keep - EVENTS_CUT_AT_ONCE then
    return 0
  end
  local freed = 0
  for _, entry in ipairs(redis.call('XRANGE', events, '-', string.format('(%.0f-0', last - keep + 1))) do
    for i = 4, #entry[2], 4 do
      freed = freed + EVENT_BYTES + #entry[2][i]
    end
  end
  redis.call('XTRIM', events, 'MINID', string.format('%.0f-0', last - keep + 1))
  return freed
end

-- Skips the numbers of events that readers may have seen and the log lacks, since their attempt will never write them. Writes an event
-- `gap` after those numbers to tell readers. `a` holds the arguments of endInvocation. Returns the number of the log's last event.
local function passLostTail(a, seq)
  local shown, account, epoch, submitter = unpack(redis.call('HMGET', a.record, 'shown', 'account', 'epoch', 'submitter'))
  seq = tonumber(seq)
  if not shown or tonumber(shown) <= seq then
    return seq
  end
  local number, data = tonumber(shown) + 1, '{"after":' .. seq .. '}'
  redis.call('XADD', a.events, number .. '-' .. epoch, 'e', 'gap', 'd', data)
  if account then
    holdBytes(account, 'i:' .. a.id, EVENT_BYTES + #data)
  end
  redis.call('HSET', a.record, 'seq', number)
  redis.call('HDEL', a.record, 'shown')
  publishLive(a.live, submitter, a.id, epoch .. '-' .. number .. '\0gap\0' .. data)
  return number
end

-- Maximum bytes of a log entry, unless one event alone has more. Entries are bounded because readers take whole entries.
local ENTRY_BYTES = 16384

-- Free bytes by account, as the script first read them. They do not include the changes that the script has gathered.
local roomOf = {}

-- Like `bytesRefusal`, but counts the gathered changes too.
local function refusalOf(account, bytes, now)
  local earlier = gatheredSum(accountKey(account), 'bytes')
  if roomOf[account] == nil then
    local limit = quotaLimit(account, 'redis-bytes', '', now)
    roomOf[account] = limit and limit - bytesOf(account) or math.huge
  end
  if earlier + bytes <= roomOf[account] then
    return nil
  end
  local refusal = bytesRefusal(account, earlier + bytes, now)
  return refusal and {refusal[1], refusal[2], refusal[3] + earlier}
end

-- Appends the events of a running attempt to its log, except those that the log already has. Call `runGathered` after the last call.
-- `w`: keys `record` and `events`; `channel` on which they are published, or '' when the attempt shows its events itself; `firstSeq`, number
--   of the first event; `first`, index in ARGV of the first pair of event and data; `count`.
-- `record`: the record's fields epoch, seq, bytes, account, id, firstMessageAt, rootKey, familyBytes, submitter; a caller that
--   stores `record` also passes `parent`, because the record of a child gets no `firstMessageAt`.
-- `bounds`: `now`; maximum `events` and `bytes` of a log; `lines` of the function's log, and the time `linesMs` that it is kept; `familyBytes`;
--   `ahead`, the events that an attempt may show before it writes them.
-- Returns nil, or the refusal that `append` returns; after a refusal, nothing was appended. New values go to `record` and, as pairs of field
-- and value, to `changed`; the caller stores them.
local function appendEvents(w, record, bounds, changed)
  local seq, bytes, account = tonumber(record.seq), tonumber(record.bytes), record.account
  if w.firstSeq > seq + 1 then
    return {-3, seq}
  end
  local skipped, added = math.min(w.count, seq + 1 - w.firstSeq), 0
  if skipped == w.count then
    return nil
  end
  local from, to = w.first + 2 * skipped, w.first + 2 * w.count - 2
  for place = from, to, 2 do
    added = added + #ARGV[place + 1]
  end
  local stored = added + (w.count - skipped) * EVENT_BYTES
  local family, familyBytes = familyOf(w.record, record.rootKey, record.familyBytes)
  if bytes + added > bounds.bytes or familyBytes + stored > bounds.familyBytes then
    return -2
  end
  local refusal = account and refusalOf(account, stored, bounds.now)
  if refusal then
    return {-4, unpack(refusal)}
  end

  local live, entry, entryBytes, last = {}, {}, 0, seq
  for place = from, to, 2 do
    local event, data = ARGV[place], ARGV[place + 1]
    last = last + 1
    if entryBytes + #data > ENTRY_BYTES and #entry > 0 then
      redis.call('XADD', w.events, (last - 1) .. '-' .. record.epoch, unpack(entry))
      entry, entryBytes = {}, 0
    end
    for _, value in ipairs({'e', event, 'd', data}) do
      entry[#entry + 1] = value
    end
    entryBytes = entryBytes + #data
    if w.channel ~= '' then
      live[#live + 1] = record.epoch .. '-' .. last .. '\0' .. event .. '\0' .. data
    end
    if event == 'message' and not record.firstMessageAt then
      countFirstMessage(w.record, account, bounds.now)
      record.firstMessageAt = account and not record.parent and bounds.now or nil
    end
    if event == 'log' then
      functionLog(w.record, last, event, data, bounds.now, bounds.lines, bounds.linesMs)
    end
  end
  redis.call('XADD', w.events, last .. '-' .. record.epoch, unpack(entry))
  local fields = {'seq', last, 'bytes', bytes + added}
  if family == w.record then
    fields[5], fields[6] = 'familyBytes', familyBytes + stored
  else
    redis.call('HSET', family, 'familyBytes', familyBytes + stored)
  end
  if account then
    -- A log holds at most `last` events, so it needs no cut while `last` is within the bound.
    local cut = last > bounds.events and cutEvents(w.events, last, bounds.events) or 0
    if stored ~= cut then
      redis.call('HINCRBY', accountKey(account), 'i:' .. record.id, stored - cut)
      addLater(accountKey(account), 'bytes', stored - cut)
    end
  end
  if w.channel ~= '' then
    publishLive(w.channel, record.submitter, record.id, table.concat(live, '\0'))
  else
    fields[#fields + 1] = 'shown'
    fields[#fields + 1] = last + bounds.ahead
  end
  for i = 1, #fields, 2 do
    record[fields[i]] = fields[i + 1]
    changed[#changed + 1] = fields[i]
    changed[#changed + 1] = fields[i + 1]
  end
  return nil
end

--- @script "append"
--[[
  Appends numbered events to the logs of attempts, publishes those that were not shown before, and counts the attempts' usage. It skips
  events that a log already holds, so the same call may be made twice. A refused or failed write does not affect the others.

  KEYS[1, 3, ...] records (hashes)
  KEYS[2, 4, ...] their events (streams). An entry holds events written at once, as fields `e` (event) and `d` (data) of each; its id is
    `<number of its last event>-<epoch>`

  ARGV[1] now, ms
  ARGV[2] approximate number of events that a log keeps
  ARGV[3] maximum bytes of event data that an invocation may log in all
  ARGV[4] approximate number of lines that a function's log keeps
  ARGV[5] retention of a function's log after its last line, ms
  ARGV[6] maximum bytes of all events of the root's family, terminal events and 64 bytes per event included
  ARGV[7] events past the log's last one that an attempt may show before it has written them
  ARGV[8...] for each record: live channel, or '' when the attempt shows its events itself; epoch of the attempt; number of the first event;
    usage after these events (../usage/usage.lua) or ''; the tokens that the attempt asks for with this usage
    (../quotas/limits.lua) or ''; number of events; then a pair of event and data for each

  Returns for each record
          1 appended, for a write without usage; {1, quotaReply of ../quotas/limits.lua} for one with usage
          0 stale epoch, or no such record
          -1 the invocation has ended
          -2 the events would exceed the byte limit of the invocation or its family; nothing was appended
          {-3, number of the log's last event} a gap in the numbers; nothing was appended
          {-4, quota, limit, used} the tenant may keep no more bytes in Redis; nothing was appended
          {-5, text of the error}
]]
--- @include "../quotas/limits.lua"

local now = tonumber(ARGV[1])
-- HEAD is the number of arguments before those of the first record, HEAD_OF_WRITE that of a record's arguments before its events.
local HEAD, HEAD_OF_WRITE = 7, 6
local bounds = { now = now, events = tonumber(ARGV[2]), bytes = tonumber(ARGV[3]), lines = ARGV[4], linesMs = ARGV[5],
  familyBytes = tonumber(ARGV[6]), ahead = tonumber(ARGV[7]) }

-- Usage by account and function; the script counts each once, after all writes.
local tallies = {}

-- Adds the usage of one write to the sum of its tenant's function. `i` is the index of the write's reply. `write` has the attempt (record, id, epoch,
-- hasGrant), its charged tokens in all (reported), those of this write (charged), and its ask. An attempt may have several writes in a call, for instance
-- one with events and one with an ask: they get the same quota reply.
local function tally(account, fn, added, i, write)
  local name = account .. '\0' .. fn
  local known = tallies[name] or {account = account, fn = fn, added = {}, answers = {}, ids = {}, attempts = {}}
  tallies[name] = known
  for place, n in pairs(added) do
    known.added[place] = (known.added[place] or 0) + n
  end
  known.answers[#known.answers + 1] = {i = i, id = write.id}
  local earlier = known.attempts[write.id]
  if earlier then
    write.charged = earlier.charged + write.charged
    write.ask = write.ask ~= '' and write.ask or earlier.ask
  else
    known.ids[#known.ids + 1] = write.id
  end
  known.attempts[write.id] = write
end

-- Counts the usage of one tenant's function, and sets the replies to its attempts.
local function settleTally(known, replies)
  if next(known.added) then
    addUsage(known.account, known.fn, now, known.added)
  end
  local quotas = openQuotas(known.account, known.fn, now, known.ids)
  local grants = quotas.grants
  for _, id in ipairs(grants and known.ids or {}) do
    keepGrant(grants, known.attempts[id])
  end
  for _, id in ipairs(known.ids) do
    local attempt = known.attempts[id]
    if grants then
      attempt.reply = quotaReply(quotas, renewGrant(grants, attempt))
      if not attempt.hasGrant then
        redis.call('HSET', attempt.record, 'granted', 1)
      end
    else
      attempt.reply = quotaReply(quotas)
    end
  end
  for _, answer in ipairs(known.answers) do
    replies[answer.i] = replies[answer.i] == 1 and {1, unpack(known.attempts[answer.id].reply)} or replies[answer.i]
  end
  if grants then
    closeGrants(grants)
  end
end

local READ = {'status', 'epoch', 'seq', 'bytes', 'account', 'function', 'firstMessageAt', 'rootKey', 'familyBytes', 'id', 'usageEpoch', 'usageNow',
  'usageBefore', 'submitter', 'granted'}

-- Performs one write; `at` is the index of its first argument, `i` that of its reply.
local function write(key, events, at, i)
  local record, values = {}, redis.call('HMGET', key, unpack(READ))
  for place, name in ipairs(READ) do
    record[name] = values[place] or nil
  end
  if record.status == 'succeeded' or record.status == 'failed' or record.status == 'cancelled' then
    return -1
  end
  if record.status ~= 'running' or record.epoch ~= ARGV[at + 1] then
    return 0
  end
  local usage, changed = ARGV[at + 3], {}
  local refusal = appendEvents({ record = key, events = events, channel = ARGV[at], firstSeq = tonumber(ARGV[at + 2]), first = at + HEAD_OF_WRITE,
    count = tonumber(ARGV[at + 5]) }, record, bounds, changed)
  if refusal then
    return refusal
  end
  if usage ~= '' and record.account then
    local added, metered = usageChange(changed, record.usageEpoch, record.usageNow, record.usageBefore, record.epoch, usage)
    tally(record.account, record['function'], added, i, {record = key, id = record.id, epoch = record.epoch, hasGrant = record.granted,
      reported = chargedTokens(metered), charged = addedTokens(added), ask = ARGV[at + 4]})
  end
  if #changed > 0 then
    redis.call('HSET', key, unpack(changed))
  end
  return 1
end

local function failure(raised)
  return {-5, type(raised) == 'table' and raised.err or tostring(raised)}
end

local replies, at = {}, HEAD + 1
for i = 1, #KEYS / 2 do
  local ok, reply = pcall(write, KEYS[2 * i - 1], KEYS[2 * i], at, i)
  if not ok then
    reply = failure(reply)
  end
  replies[i] = reply
  at = at + HEAD_OF_WRITE + 2 * tonumber(ARGV[at + 5])
end
runGathered()
for _, known in pairs(tallies) do
  local ok, raised = pcall(settleTally, known, replies)
  if not ok then
    for _, answer in ipairs(known.answers) do
      replies[answer.i] = (replies[answer.i] == 1 or type(replies[answer.i]) == 'table' and replies[answer.i][1] == 1) and failure(raised)
        or replies[answer.i]
    end
  end
end
return replies

--- @script "read-events"
--[[
  Returns the entries of an event log after a reader's position, oldest first, up to bounds on events and bytes, but at least one entry. The
  bytes are bounded since a reader holds the entries in memory, and event sizes vary a thousandfold. The first entry may begin with events that
  the reader has.

  After Redis lost writes, events of a later epoch may have numbers of events that the reader has. The entries then begin with the first event of
  a later epoch.

  KEYS[1] events (stream)
  KEYS[2] record (hash)

  ARGV[1] number of the last event that the reader has
  ARGV[2] epoch of that event, or '' when the reader does not know it
  ARGV[3] maximum events
  ARGV[4] maximum bytes of their fields, unless the first entry alone has more

  Returns {1 if the log holds no more, else 0; status or ''; runtime that shows events before writing them, or ''; number after
          which the store lost events that the reader has, or ''; epoch of the record; XRANGE entries...}.
]]
local after, most, mostBytes = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local status, runtime, shown, newestEpoch, lastSeq = unpack(redis.call('HMGET', KEYS[2], 'status', 'runtimeId', 'shown', 'epoch', 'seq'))

-- The first entry that ends with this number or a later one.
local function entryFrom(number)
  return redis.call('XRANGE', KEYS[1], string.format('%.0f-0', number), '+', 'COUNT', 1)[1]
end

-- True when the entry's epoch is later than the reader's.
local function isLater(entry)
  return tonumber(string.match(entry[1], '%-(%d+)$')) > tonumber(ARGV[2])
end

-- True when the reader's number belongs to a later epoch, or when the log ends before it although a later epoch exists. An entry has four texts
-- for each of its n events, and its id names the last number: the entry holds the numbers greater than `last - n`.
local function isReused()
  local entry = entryFrom(after)
  if entry then
    return isLater(entry) and tonumber(string.match(entry[1], '^%d+')) - #entry[2] / 4 < after
  end
  return lastSeq and tonumber(newestEpoch) > tonumber(ARGV[2]) and tonumber(lastSeq) < after
end

-- Number of the last event before those of later epochs. Searches by halves, since epochs only grow along a log.
local function lastBeforeLater()
  local low, high = 0, after
  while low < high do
    local middle = math.floor((low + high) / 2) + 1
    local entry = entryFrom(middle)
    if entry and not isLater(entry) then
      low = middle
    else
      high = middle - 1
    end
  end
  return low
end

local lost = ''
if ARGV[2] ~= '' and after > 0 and isReused() then
  after = lastBeforeLater()
  lost = string.format('%.0f', after)
end
local reply = { 0, status or '', status == 'running' and shown and runtime or '', lost, newestEpoch or '' }
local head, count, bytes, from = #reply, 0, 0, string.format('%.0f-0', after + 1)
while count < most do
  local entry = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)[1]
  if not entry then
    reply[1] = 1
    break
  end
  for _, field in ipairs(entry[2]) do
    bytes = bytes + #field
  end
  if bytes > mostBytes and #reply > head then
    break
  end
  reply[#reply + 1] = entry
  count = count + #entry[2] / 4
  from = '(' .. entry[1]
end
return reply
