--[[
  Appends numbered events to the logs of attempts, publishes those that were not shown before, and counts the attempts' usage. It skips
  events that a log already holds, so the same call may be made twice. A refused or failed write does not affect the others.

  KEYS[1, 3, ...] records (hashes)
  KEYS[2, 4, ...] their events (streams): entries `<number of the last event>-<epoch>` of the events written at once, fields `e` and `d` each

  ARGV[1] now, ms
  ARGV[2] approximate number of events that a log keeps
  ARGV[3] most bytes of event data that an invocation may log in all
  ARGV[4] approximate number of lines that a function's log keeps
  ARGV[5] retention of a function's log after its last line, ms
  ARGV[6] most bytes of all events of the root's family, terminal events and 64 bytes per event included
  ARGV[7] events past the log's last one that an attempt may show before it has written them
  ARGV[8...] for each record: live channel, or '' when the attempt shows its events itself; epoch of the attempt; number of the first event;
    usage after these events (../../usage/scripts/include/metering.lua) or ''; number of events; then a pair of event and data for each

  Returns for each record 1 appended (with usage {1, quotaReply of ../../quotas/scripts/include/exceeded.lua}), 0 stale epoch (or no such
          record), -1 ended, -2 byte limit of the invocation or its family exceeded (nothing was appended).
          {-3, number of the log's last event} a gap in the numbers.
          {-4, quota, limit, used} the tenant may keep no more bytes in Redis (nothing was appended).
          {-5, text of the error}.
]]
--- @include "./include/function-log.lua"
--- @include "./include/family.lua"
--- @include "./include/cut-events.lua"
--- @include "../../usage/scripts/include/metering.lua"
--- @include "../../usage/scripts/include/first-message.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"
--- @include "../../quotas/scripts/include/exceeded.lua"

local now, keepEvents, mostBytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local HEAD, HEAD_OF_WRITE = 7, 5
-- Most bytes of a log entry, unless one event alone has more; readers take whole entries.
local ENTRY_BYTES = 16384

-- Bytes by account, and usage by account and function; the script counts both once, after all writes.
local held, tallies = {}, {}

local function hold(account, holder, bytes)
  if bytes ~= 0 then
    redis.call('HINCRBY', accountKey(account), holder, bytes)
    held[account] = (held[account] or 0) + bytes
  end
end

-- Free bytes by account, read once.
local room = {}

local function refusalOf(account, bytes)
  local earlier = held[account] or 0
  if room[account] == nil then
    local limit = quotaLimit(account, 'redis-bytes', '', now)
    room[account] = limit and limit - bytesOf(account) or math.huge
  end
  if earlier + bytes <= room[account] then
    return nil
  end
  local refusal = bytesRefusal(account, earlier + bytes, now)
  return refusal and {refusal[1], refusal[2], refusal[3] + earlier}
end

-- Adds the usage of one attempt to the sum of its tenant's function; `i` is the index of the answer.
local function tally(account, fn, added, i)
  local name = account .. '\0' .. fn
  local known = tallies[name] or {account = account, fn = fn, added = {}, answers = {}}
  tallies[name] = known
  for place, n in pairs(added) do
    known.added[place] = (known.added[place] or 0) + n
  end
  known.answers[#known.answers + 1] = i
end

-- Performs one write; `at` is the index of its head in ARGV, `i` that of its answer.
local function write(record, events, at, i)
  local channel, own, firstSeq, usage, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3], tonumber(ARGV[at + 4])
  local first = at + HEAD_OF_WRITE
  local status, epoch, seq, bytes, account, fn, spoken, root, ownBytes, id, speaker, told, before = unpack(redis.call('HMGET', record, 'status',
    'epoch', 'seq', 'bytes', 'account', 'function', 'firstMessageAt', 'rootKey', 'familyBytes', 'id', 'usageEpoch', 'usageNow', 'usageBefore'))
  if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
    return -1
  end
  if status ~= 'running' or epoch ~= own then
    return 0
  end
  seq, bytes = tonumber(seq), tonumber(bytes)
  if firstSeq > seq + 1 then
    return {-3, seq}
  end

  -- Skip the events that the log already has.
  local skipped, added = math.min(count, seq + 1 - firstSeq), 0
  for place = first + 2 * skipped, first + 2 * count - 2, 2 do
    added = added + #ARGV[place + 1]
  end
  local fields = {}
  if skipped < count then
    if bytes + added > mostBytes then
      return -2
    end
    local stored = added + (count - skipped) * EVENT_BYTES
    local family, familyBytes = familyOf(record, root, ownBytes)
    if familyBytes + stored > tonumber(ARGV[6]) then
      return -2
    end
    local refusal = account and refusalOf(account, stored)
    if refusal then
      return {-4, unpack(refusal)}
    end

    local live, entry, entryBytes, last = {}, {}, 0, seq
    for place = first + 2 * skipped, first + 2 * count - 2, 2 do
      local event, data = ARGV[place], ARGV[place + 1]
      last = last + 1
      if entryBytes + #data > ENTRY_BYTES and #entry > 0 then
        redis.call('XADD', events, (last - 1) .. '-' .. epoch, unpack(entry))
        entry, entryBytes = {}, 0
      end
      for _, value in ipairs({'e', event, 'd', data}) do
        entry[#entry + 1] = value
      end
      entryBytes = entryBytes + #data
      if channel ~= '' then
        live[#live + 1] = epoch .. '-' .. last .. '\0' .. event .. '\0' .. data
      end
      if event == 'message' and not spoken then
        spoken = true
        countFirstMessage(record, account, now)
      end
      if event == 'log' then
        functionLog(record, last, event, data, ARGV[1], ARGV[4], ARGV[5])
      end
    end
    redis.call('XADD', events, last .. '-' .. epoch, unpack(entry))
    fields = {'seq', last, 'bytes', bytes + added}
    if family == record then
      fields[5], fields[6] = 'familyBytes', familyBytes + stored
    else
      redis.call('HSET', family, 'familyBytes', familyBytes + stored)
    end
    if account then
      -- A log holds at most `last` events, so a smaller number needs no cut.
      local cut = last > keepEvents and cutEvents(events, last, keepEvents) or 0
      hold(account, 'i:' .. id, stored - cut)
    end
    if channel ~= '' then
      redis.call('PUBLISH', channel, table.concat(live, '\0'))
    else
      fields[#fields + 1] = 'shown'
      fields[#fields + 1] = last + tonumber(ARGV[7])
    end
  end
  local isMetered = usage ~= '' and account
  if isMetered then
    tally(account, fn, usageChange(fields, speaker, told, before, epoch, usage), i)
  end
  if #fields > 0 then
    redis.call('HSET', record, unpack(fields))
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
  at = at + HEAD_OF_WRITE + 2 * tonumber(ARGV[at + 4])
end
for account, bytes in pairs(held) do
  -- A failure here affects only the tenant's sum.
  pcall(changeBytes, account, bytes)
end
for _, known in pairs(tallies) do
  local ok, quotas = pcall(function()
    if next(known.added) then
      count(known.account, known.fn, now, known.added)
    end
    return {1, unpack(quotaReply(known.account, known.fn, now))}
  end)
  for _, i in ipairs(known.answers) do
    replies[i] = replies[i] == 1 and (ok and quotas or failure(quotas)) or replies[i]
  end
end
return replies
