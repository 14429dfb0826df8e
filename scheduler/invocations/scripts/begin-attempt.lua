--[[
  Begins an attempt: only the caller may write until a newer epoch exists.

  KEYS[1] record (hash)
  KEYS[2] its BullMQ job (hash)
  KEYS[3] registered runtimes (hash)

  ARGV[1] runtime id
  ARGV[2] now, ms
  ARGV[3] a token of this call, so that a command sent twice begins one attempt
  ARGV[4] the runtime's cancels (hash)
  ARGV[5] channel on which the runtime hears of cancels
  ARGV[6] token with which the runtime fetched the job, or '' for any
  ARGV[7] events past the log's last one that the attempt may show before it has written them; 0 when it shows none
  ARGV[8] live channel; a message tells followers which runtime shows the events

  Returns {1, epoch, number of the attempt's first event, attempt, start of the wait for this attempt, `usageBefore` and `usageNow` of
          ../../usage/scripts/include/metering.lua or '', standing of its version (../../quarantine/scripts/include/standing.lua),
          attemptLimits of ../../quotas/scripts/include/exceeded.lua}
          {0, 'ended' | 'already-ran' | 'unknown'}
          {0, 'not-held'} when the runtime was declared dead or does not hold the job (any more); the invocation goes on elsewhere
]]
--- @include "../../quotas/scripts/include/limits.lua"
--- @include "../../usage/scripts/include/counters.lua"
--- @include "../../quotas/scripts/include/exceeded.lua"
--- @include "../../admission/scripts/include/admission.lua"
--- @include "../../quarantine/scripts/include/standing.lua"

local record = KEYS[1]
local status, epoch, seq, attempts, restartable, token, submittedAt, requeuedAt, usageBefore, usageNow, account, fn, prefix, id, conduct, tenant =
  unpack(redis.call('HMGET', record, 'status', 'epoch', 'seq', 'attempts', 'restartable', 'token', 'submittedAt', 'requeuedAt', 'usageBefore',
    'usageNow', 'account', 'function', 'prefix', 'id', 'conductKey', 'tenant'))
local queuedAt = tonumber(requeuedAt or submittedAt)
usageBefore, usageNow = usageBefore or '', usageNow or ''
local standing = standingOf(conduct, tenant, tonumber(ARGV[2]))

if not status then
  return {0, 'unknown'}
end
if status == 'running' and token == ARGV[3] then
  return {1, tonumber(epoch), tonumber(seq) + 1, tonumber(attempts), queuedAt, usageBefore, usageNow, standing,
    attemptLimits(account, fn, tonumber(ARGV[2]))}
end
if status == 'running' or (status == 'queued' and tonumber(attempts) > 0 and restartable ~= '1') then
  return {0, 'already-ran'}
end
if status ~= 'queued' then
  return {0, 'ended'}
end
if redis.call('HGET', KEYS[2], 'pb') ~= ARGV[1] or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0
  or (ARGV[6] ~= '' and redis.call('GET', KEYS[2] .. ':lock') ~= ARGV[6]) then
  return {0, 'not-held'}
end

-- At least the current time, not just the next number: if Redis loses this write, the next attempt must get a different epoch.
local nextEpoch = math.max(tonumber(epoch) + 1, tonumber(ARGV[2]))
local attempt = tonumber(attempts) + 1
redis.call('HSET', record, 'attempts', attempt, 'status', 'running', 'epoch', nextEpoch, 'runtimeId', ARGV[1], 'startedAt', ARGV[2], 'token', ARGV[3],
  'cancelsKey', ARGV[4], 'cancelChannel', ARGV[5])
if tonumber(ARGV[7]) > 0 then
  redis.call('HSET', record, 'shown', tonumber(seq) + tonumber(ARGV[7]))
  redis.call('PUBLISH', ARGV[8], '0\0begun\0' .. ARGV[1])
end
beginAdmitted(prefix, id, ARGV[2])
return {1, nextEpoch, tonumber(seq) + 1, attempt, queuedAt, usageBefore, usageNow, standing,
  attemptLimits(account, fn, tonumber(ARGV[2]))}
