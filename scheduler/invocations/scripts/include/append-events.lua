--- @include "../../../store/scripts/gather.lua"
--- @include "./function-log.lua"
--- @include "./family.lua"
--- @include "./cut-events.lua"
--- @include "./publish-live.lua"
--- @include "../../../usage/scripts/include/counters.lua"
--- @include "../../../usage/scripts/include/first-message.lua"
--- @include "../../../quotas/scripts/include/bytes-limit.lua"

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
-- Returns nil, or the refusal that append.lua returns; after a refusal, nothing was appended. New values go to `record` and, as pairs of field
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
