-- Attempts and children.
--- @include "../quotas/limits.lua"
--- @include "../usage/usage.lua"
--- @include "../admission/rules.lua"
--- @include "../quarantine/quarantine.lua"
--- @include "./log.lua"

-- True while the attempt of that epoch runs: only then may it write data that others read. A caller that is no attempt passes '' and may write.
local function isCurrent(record, epoch)
  if epoch == '' then
    return true
  end
  local status, current = unpack(redis.call('HMGET', record, 'status', 'epoch'))
  return status == 'running' and current == epoch
end

-- Ids of the invocations that this script has begun, by the prefix of their keys.
local begun = {}

-- Begins one attempt and returns the reply for it, see the script `begin-attempt`. `a` holds the keys record, job and runtimes, and runtimeId,
-- cancels, cancelChannel, token (of the call), fetched (token of the fetch), live, ahead (events that the attempt may show before it has
-- written them) and now. The script calls `admitAfterBegins` after its last begin.
local function beginAttempt(a)
  local status, epoch, seq, attempts, restartable, token, submittedAt, requeuedAt, usageBefore, usageNow, account, fn, prefix, id, conduct,
    tenant, submitter = unpack(redis.call('HMGET', a.record, 'status', 'epoch', 'seq', 'attempts', 'restartable', 'token', 'submittedAt', 'requeuedAt',
    'usageBefore', 'usageNow', 'account', 'function', 'prefix', 'id', 'conductKey', 'tenant', 'submitter'))
  local now = tonumber(a.now)
  local function answer(newEpoch, attempt, isRepeated)
    return {1, newEpoch, tonumber(seq) + 1, attempt, tonumber(requeuedAt or submittedAt), usageBefore or '', usageNow or '',
      standingOf(conduct, tenant, now), attemptLimits(account, fn, now, { record = a.record, id = id, epoch = string.format('%.0f', newEpoch),
      isRepeated = isRepeated })}
  end
  if not status then
    return {0, 'unknown'}
  end
  if status == 'running' and token == a.token then
    return answer(tonumber(epoch), tonumber(attempts), true)
  end
  if status == 'running' or (status == 'queued' and tonumber(attempts) > 0 and restartable ~= '1') then
    return {0, 'already-ran'}
  end
  if status ~= 'queued' then
    return {0, 'ended'}
  end
  -- The job's field `pb` (BullMQ: processed by) names the runtime that holds the job; the lock has the token of the fetch.
  if redis.call('HGET', a.job, 'pb') ~= a.runtimeId or redis.call('HEXISTS', a.runtimes, a.runtimeId) == 0
    or (a.fetched ~= '' and redis.call('GET', a.job .. ':lock') ~= a.fetched) then
    return {0, 'not-held'}
  end

  -- At least the current time, not just the next number: if Redis loses this write, the next attempt must get a different epoch.
  local nextEpoch = math.max(tonumber(epoch) + 1, now)
  local attempt = tonumber(attempts) + 1
  local fields = {'attempts', attempt, 'status', 'running', 'epoch', nextEpoch, 'runtimeId', a.runtimeId, 'startedAt', a.now, 'token', a.token,
    'cancelsKey', a.cancels, 'cancelChannel', a.cancelChannel}
  if a.live ~= '' then
    fields[#fields + 1] = 'shown'
    fields[#fields + 1] = tonumber(seq) + tonumber(a.ahead)
  end
  redis.call('HSET', a.record, unpack(fields))
  if a.live ~= '' then
    publishLive(a.live, submitter, id, '0\0begun\0' .. a.runtimeId)
  end
  begun[prefix] = begun[prefix] or {}
  table.insert(begun[prefix], id)
  return answer(nextEpoch, attempt, false)
end

-- Tells admission which attempts have begun, so that it may send other invocations.
local function admitAfterBegins(now)
  for prefix, ids in pairs(begun) do
    beginAdmitted(prefix, ids, now)
  end
end

--- @script "begin-attempt"
--[[
  Begins attempts. Only the begun attempt may write to its invocation until a newer epoch exists. A refused begin does not affect the others.

  KEYS[1] registered runtimes (hash)
  KEYS[2, 4, ...] records (hashes); KEYS[3, 5, ...] their BullMQ jobs (hashes)

  ARGV[1] now, ms
  ARGV[2] events past the log's last one that an attempt may show before it has written them
  ARGV[3...] for each record: runtime id; the runtime's cancels (hash); channel on which it hears of cancels; a token of this call, so that
    a command sent twice begins one attempt; token with which the runtime fetched the job, or '' for any; live channel, on which a message
    tells followers which runtime shows the events, or '' when it shows none

  Returns for each record
          {1, epoch, number of the attempt's first event, attempt, start of the wait for this attempt, `usageBefore` and `usageNow` of
          ../usage/usage.lua or '', standing of its version (../quarantine/quarantine.lua),
          attemptLimits of ../quotas/limits.lua}
          {0, 'ended' | 'already-ran' | 'unknown'}
          {0, 'not-held'} when the runtime was declared dead or does not hold the job (any more); the invocation goes on elsewhere
          {-5, text of the error}
]]

-- HEAD is the number of arguments before those of the first record, PER_ATTEMPT that of the arguments of each record.
local HEAD, PER_ATTEMPT = 2, 6

local replies = {}
for i = 1, (#KEYS - 1) / 2 do
  local at = HEAD + (i - 1) * PER_ATTEMPT
  local a = { record = KEYS[2 * i], job = KEYS[2 * i + 1], runtimes = KEYS[1], now = ARGV[1], ahead = ARGV[2] }
  a.runtimeId, a.cancels, a.cancelChannel, a.token, a.fetched, a.live = unpack(ARGV, at + 1, at + PER_ATTEMPT)
  local ok, reply = pcall(beginAttempt, a)
  replies[i] = ok and reply or {-5, type(reply) == 'table' and reply.err or tostring(reply)}
end
admitAfterBegins(ARGV[1])
return replies

--- @script "begin-child"
--[[
  Stores the record of a child whose only attempt has begun. Its runtime runs the child at once, so the child enters no queue.

  KEYS[1] record (hash)
  KEYS[2] record of the parent (hash)
  KEYS[3] deadlines (sorted set)
  KEYS[4] prefix of the keys of the tenant's lists of invocations, see listing.lua
  KEYS[5] children that have not ended (hash)

  ARGV[1] id
  ARGV[2] submitted at, ms
  ARGV[3] deadline, ms after submission
  ARGV[4] maximum ended invocations in the function's list
  ARGV[5] time after its submission when an ended invocation without a record leaves the lists, ms
  ARGV[6] runtime id
  ARGV[7] a token of this call, so that a command sent twice begins one attempt
  ARGV[8] epoch of the parent's attempt
  ARGV[9] now, ms
  ARGV[10] maximum ended invocations in the tenant's list
  ARGV[11] events past the log's last one that the child may show before it has written them; 0 when it shows none
  ARGV[12...] further fields and values of the record

  Returns {1, epoch, number of the first event, standing (../quarantine/quarantine.lua), attemptLimits (../quotas/limits.lua)}
          {0, 'parent-ended' | 'already-ran' | 'not-deployed'}
          {-4, quota, limit, used} the tenant may keep no more bytes in Redis
]]
--- @include "./listing.lua"
--- @include "../quotas/account.lua"
--- @include "../functions/functions.lua"

local record, parent, deadlines, listing, children = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, submittedAt, deadlineMs, runtimeId = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[6]

local given = {}
for i = 12, #ARGV, 2 do
  given[ARGV[i]] = ARGV[i + 1]
end
local standing = standingOf(given.conductKey, given.tenant, tonumber(ARGV[9]))
local status, token, epoch, seq, account, fn = unpack(redis.call('HMGET', record, 'status', 'token', 'epoch', 'seq', 'account', 'function'))
if status then
  if status == 'running' and token == ARGV[7] then
    local attempt = { record = record, id = id, epoch = epoch, isRepeated = true }
    return {1, tonumber(epoch), tonumber(seq) + 1, standing, attemptLimits(account, fn, tonumber(ARGV[9]), attempt)}
  end
  return {0, 'already-ran'}
end
local parentStatus, parentEpoch, parentUnfinished = unpack(redis.call('HMGET', parent, 'status', 'epoch', 'unfinishedKey'))
if parentStatus ~= 'running' or parentEpoch ~= ARGV[8] then
  return {0, 'parent-ended'}
end

-- A removed version finishes its begun invocations, including children of the same version.
if not isDeployed(given) and given.unfinishedKey ~= parentUnfinished then
  return {0, 'not-deployed'}
end
local refusal = bytesRefusal(given.account, RECORD_BYTES, tonumber(ARGV[9]))
if refusal then
  return {-4, unpack(refusal)}
end
redis.call('HSET', record, 'id', id, 'status', 'running', 'epoch', ARGV[9], 'attempts', 1, 'seq', 0, 'bytes', 0, 'submittedAt', ARGV[2],
  'deadlineMs', ARGV[3], 'startedAt', ARGV[9], 'runtimeId', runtimeId, 'token', ARGV[7], 'childrenKey', children, 'listing', listing,
  unpack(ARGV, 12))
if tonumber(ARGV[11]) > 0 then
  redis.call('HSET', record, 'shown', ARGV[11])
end
redis.call('HSET', children, id, runtimeId)
holdBytes(given.account, 'i:' .. id, RECORD_BYTES)
addUnfinished(given, id)
redis.call('ZADD', deadlines, submittedAt + deadlineMs, id)
listOpen(listing, given['function'], id, submittedAt, ARGV[10], ARGV[4], tonumber(ARGV[5]))
runGathered()
-- The usage counts a child as an invocation, but not as a request.
account, fn = given.account, given['function']
addUsage(account, fn, tonumber(ARGV[9]), {[INVOCATIONS] = 1})
return {1, tonumber(ARGV[9]), 1, standing, attemptLimits(account, fn, tonumber(ARGV[9]), { record = record, id = id, epoch = ARGV[9] })}
