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
    usage after these events (../../usage/scripts/include/metering.lua) or ''; the tokens that the attempt asks for with this usage
    (../../quotas/scripts/include/grants.lua) or ''; number of events; then a pair of event and data for each

  Returns for each record
          1 appended, for a write without usage; {1, quotaReply of ../../quotas/scripts/include/exceeded.lua} for one with usage
          0 stale epoch, or no such record
          -1 the invocation has ended
          -2 the events would exceed the byte limit of the invocation or its family; nothing was appended
          {-3, number of the log's last event} a gap in the numbers; nothing was appended
          {-4, quota, limit, used} the tenant may keep no more bytes in Redis; nothing was appended
          {-5, text of the error}
]]
--- @include "./include/append-events.lua"
--- @include "../../usage/scripts/include/metering.lua"
--- @include "../../quotas/scripts/include/exceeded.lua"

local now = tonumber(ARGV[1])
-- HEAD is the number of arguments before those of the first record, HEAD_OF_WRITE that of a record's arguments before its events.
local HEAD, HEAD_OF_WRITE = 7, 6
local bounds = { now = now, events = tonumber(ARGV[2]), bytes = tonumber(ARGV[3]), lines = ARGV[4], linesMs = ARGV[5],
  familyBytes = tonumber(ARGV[6]), ahead = tonumber(ARGV[7]) }

-- Usage by account and function; the script counts each once, after all writes.
local tallies = {}

-- Adds the usage of one attempt to the sum of its tenant's function. `answer` has the index of the write's reply (`i`), and the attempt: record,
-- id, epoch, hasGrant, reported (charged tokens in all), charged (those of this write) and ask.
local function tally(account, fn, added, answer)
  local name = account .. '\0' .. fn
  local known = tallies[name] or {account = account, fn = fn, added = {}, answers = {}, ids = {}}
  tallies[name] = known
  for place, n in pairs(added) do
    known.added[place] = (known.added[place] or 0) + n
  end
  known.answers[#known.answers + 1] = answer
  known.ids[#known.ids + 1] = answer.id
end

-- Counts the usage of one tenant's function, and sets the replies to its attempts.
local function settleTally(known, replies)
  if next(known.added) then
    addUsage(known.account, known.fn, now, known.added)
  end
  local quotas = openQuotas(known.account, known.fn, now, known.ids)
  local grants = quotas.grants
  for _, answer in ipairs(known.answers) do
    local reply
    if grants then
      reply = quotaReply(quotas, renewGrant(grants, answer.id, answer.epoch, answer.reported, answer.charged, answer.ask))
      if not answer.hasGrant then
        redis.call('HSET', answer.record, 'granted', 1)
      end
    else
      reply = quotaReply(quotas)
    end
    replies[answer.i] = replies[answer.i] == 1 and {1, unpack(reply)} or replies[answer.i]
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
    tally(record.account, record['function'], added, {i = i, record = key, id = record.id, epoch = record.epoch, hasGrant = record.granted,
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
