--[[
  Begins attempts: of each invocation, only the caller may write until a newer epoch exists. A refusal does not affect the others.

  KEYS[1] registered runtimes (hash)
  KEYS[2, 4, ...] records (hashes); KEYS[3, 5, ...] their BullMQ jobs (hashes)

  ARGV[1] now, ms
  ARGV[2] events past the log's last one that an attempt may show before it has written them
  ARGV[3...] for each record: runtime id; the runtime's cancels (hash); channel on which it hears of cancels; a token of this call, so that
    a command sent twice begins one attempt; token with which the runtime fetched the job, or '' for any; live channel, on which a message
    tells followers which runtime shows the events, or '' when it shows none

  Returns for each record
          {1, epoch, number of the attempt's first event, attempt, start of the wait for this attempt, `usageBefore` and `usageNow` of
          ../../usage/scripts/include/metering.lua or '', standing of its version (../../quarantine/scripts/include/standing.lua),
          attemptLimits of ../../quotas/scripts/include/exceeded.lua}
          {0, 'ended' | 'already-ran' | 'unknown'}
          {0, 'not-held'} when the runtime was declared dead or does not hold the job (any more); the invocation goes on elsewhere
          {-5, text of the error}
]]
--- @include "../../quotas/scripts/include/limits.lua"
--- @include "../../usage/scripts/include/counters.lua"
--- @include "../../quotas/scripts/include/exceeded.lua"
--- @include "../../admission/scripts/include/admission.lua"
--- @include "../../quarantine/scripts/include/standing.lua"

local HEAD, PER_ATTEMPT = 2, 6
local runtimes, now = KEYS[1], ARGV[1]

-- Ids of the invocations that have begun, by prefix of every key.
local begun = {}

local function begin(record, job, runtimeId, cancels, cancelChannel, given, fetched, live)
  local status, epoch, seq, attempts, restartable, token, submittedAt, requeuedAt, usageBefore, usageNow, account, fn, prefix, id, conduct,
    tenant = unpack(redis.call('HMGET', record, 'status', 'epoch', 'seq', 'attempts', 'restartable', 'token', 'submittedAt', 'requeuedAt',
    'usageBefore', 'usageNow', 'account', 'function', 'prefix', 'id', 'conductKey', 'tenant'))
  local function answer(newEpoch, attempt)
    return {1, newEpoch, tonumber(seq) + 1, attempt, tonumber(requeuedAt or submittedAt), usageBefore or '', usageNow or '',
      standingOf(conduct, tenant, tonumber(now)), attemptLimits(account, fn, tonumber(now))}
  end
  if not status then
    return {0, 'unknown'}
  end
  if status == 'running' and token == given then
    return answer(tonumber(epoch), tonumber(attempts))
  end
  if status == 'running' or (status == 'queued' and tonumber(attempts) > 0 and restartable ~= '1') then
    return {0, 'already-ran'}
  end
  if status ~= 'queued' then
    return {0, 'ended'}
  end
  if redis.call('HGET', job, 'pb') ~= runtimeId or redis.call('HEXISTS', runtimes, runtimeId) == 0
    or (fetched ~= '' and redis.call('GET', job .. ':lock') ~= fetched) then
    return {0, 'not-held'}
  end

  -- At least the current time, not just the next number: if Redis loses this write, the next attempt must get a different epoch.
  local nextEpoch = math.max(tonumber(epoch) + 1, tonumber(now))
  local attempt = tonumber(attempts) + 1
  local fields = {'attempts', attempt, 'status', 'running', 'epoch', nextEpoch, 'runtimeId', runtimeId, 'startedAt', now, 'token', given,
    'cancelsKey', cancels, 'cancelChannel', cancelChannel}
  if live ~= '' then
    fields[#fields + 1] = 'shown'
    fields[#fields + 1] = tonumber(seq) + tonumber(ARGV[2])
  end
  redis.call('HSET', record, unpack(fields))
  if live ~= '' then
    redis.call('PUBLISH', live, '0\0begun\0' .. runtimeId)
  end
  begun[prefix] = begun[prefix] or {}
  table.insert(begun[prefix], id)
  return answer(nextEpoch, attempt)
end

local replies = {}
for i = 1, (#KEYS - 1) / 2 do
  local at = HEAD + (i - 1) * PER_ATTEMPT
  local ok, reply = pcall(begin, KEYS[2 * i], KEYS[2 * i + 1], unpack(ARGV, at + 1, at + PER_ATTEMPT))
  replies[i] = ok and reply or {-5, type(reply) == 'table' and reply.err or tostring(reply)}
end
for prefix, ids in pairs(begun) do
  beginAdmitted(prefix, ids, now)
end
return replies
