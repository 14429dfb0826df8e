--- @include "../../../quotas/scripts/include/limits.lua"
--- @include "../../../usage/scripts/include/counters.lua"
--- @include "../../../quotas/scripts/include/exceeded.lua"
--- @include "../../../admission/scripts/include/admission.lua"
--- @include "../../../quarantine/scripts/include/standing.lua"
--- @include "./publish-live.lua"

-- Ids of the invocations that this script has begun, by the prefix of their keys.
local begun = {}

-- Begins one attempt and returns the reply for it, see ../begin-attempt.lua. `a` holds the keys record, job and runtimes, and runtimeId,
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
