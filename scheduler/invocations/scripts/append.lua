--[[
  Appends numbered events to an invocation's log and publishes them. Events that the log already holds are skipped, so the same call may
  be made twice.

  KEYS[1] record (hash)
  KEYS[2] events (stream)

  ARGV[1] live channel
  ARGV[2] epoch of the attempt
  ARGV[3] number of the first event
  ARGV[4] about how many events the log keeps
  ARGV[5] how many bytes of event data an invocation may log in all
  ARGV[6] now, ms
  ARGV[7] about how many lines the function's log keeps
  ARGV[8] how long the function's log is kept after its last line, ms
  ARGV[9] how many bytes all events of its root's family may have, terminal ones and 64 bytes for each included
  ARGV[10] usage of the attempt after these events, see ../../usage/scripts/include/metering.lua, or ''
  ARGV[11...] pairs: event, data

  Returns 1 appended (with usage {1, quotaReply of ../../quotas/scripts/include/exceeded.lua}), 0 stale epoch (or no such record), -1 ended, -2 byte limit passed, its own or its family's (nothing was appended).
          {-3, number of the log's last event} a gap in the numbers.
          {-4, quota, limit, used} its tenant may keep no more in Redis (nothing was appended).
]]
local record, events = KEYS[1], KEYS[2]
local firstSeq = tonumber(ARGV[3])
local status, epoch, seq, bytes, account, fn, spoken, root, ownBytes, id = unpack(redis.call('HMGET', record, 'status', 'epoch', 'seq', 'bytes',
  'account', 'function', 'firstMessageAt', 'rootKey', 'familyBytes', 'id'))

if not status then
  return 0
end
if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
  return -1
end
if status ~= 'running' or epoch ~= ARGV[2] then
  return 0
end

seq = tonumber(seq)
bytes = tonumber(bytes)
if firstSeq > seq + 1 then
  return {-3, seq}
end

--- @include "./include/function-log.lua"
--- @include "./include/family.lua"
--- @include "./include/cut-events.lua"
--- @include "../../usage/scripts/include/metering.lua"
--- @include "../../usage/scripts/include/first-message.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"
--- @include "../../quotas/scripts/include/exceeded.lua"

local usage, now = ARGV[10], tonumber(ARGV[6])
local function appended()
  if usage == '' or not account then
    return 1
  end
  meter(record, epoch, usage, now)
  return {1, unpack(quotaReply(account, fn, now))}
end

local added, count = 0, 0
local current = firstSeq
for i = 11, #ARGV, 2 do
  if current > seq then
    added = added + #ARGV[i + 1]
    count = count + 1
  end
  current = current + 1
end
local last = current - 1
if last <= seq then
  return appended()
end
if bytes + added > tonumber(ARGV[5]) then
  return -2
end
local family, familyBytes = familyOf(record, root, ownBytes)
familyBytes = familyBytes + added + count * EVENT_BYTES
if familyBytes > tonumber(ARGV[9]) then
  return -2
end
local stored = added + count * EVENT_BYTES
local refusal = account and bytesRefusal(account, stored, now)
if refusal then
  return {-4, unpack(refusal)}
end

local live = {}
current = firstSeq
for i = 11, #ARGV, 2 do
  if current > seq then
    local event, data = ARGV[i], ARGV[i + 1]
    redis.call('XADD', events, current .. '-0', 'e', event, 'd', data)
    live[#live + 1] = current .. '\0' .. event .. '\0' .. data
    if event == 'message' and not spoken then
      spoken = true
      countFirstMessage(record, account, now)
    end
    if event == 'log' then
      functionLog(record, current, event, data, ARGV[6], ARGV[7], ARGV[8])
    end
  end
  current = current + 1
end
redis.call('HSET', record, 'seq', last, 'bytes', bytes + added)
redis.call('HSET', family, 'familyBytes', familyBytes)
if account then
  -- A log has no more events than its last number says.
  local cut = last > tonumber(ARGV[4]) and cutEvents(events, tonumber(ARGV[4])) or 0
  holdBytes(account, 'i:' .. id, stored - cut)
end
redis.call('PUBLISH', ARGV[1], table.concat(live, '\0'))
return appended()
