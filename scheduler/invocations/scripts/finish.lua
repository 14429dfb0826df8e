--[[
  Ends invocations for their running attempts, and writes the attempts' last events. Exactly one terminal event is written to each, even with
  concurrent callers. An end also removes the BullMQ job, which the attempt's runtime holds. A refused end does not affect the others.

  KEYS[1] deadlines (sorted set)
  KEYS[2, 5, ...] records (hashes); KEYS[3, 6, ...] their events (streams); KEYS[4, 7, ...] their inboxes (lists)

  ARGV[1] now, ms
  ARGV[2..5] record, events, lines and times of `keptFor` in include/end-arguments.lua
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
    - usage of the attempt as it is counted (../../usage/scripts/include/metering.lua), or ''
    - granted tokens beyond this usage whose use may become known after the end, see settle.lua
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
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/end-arguments.lua"
--- @include "./include/end-invocation.lua"
--- @include "./include/append-events.lua"
--- @include "../../admission/scripts/include/learn-peaks.lua"

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
