--[[
  Stores the record of a new invocation and puts the invocation into its tenant's line.

  KEYS[1] record (hash)
  KEYS[2] arrivals (counter)
  KEYS[3] deadlines (sorted set)
  KEYS[4] prefix of the keys of the tenant's lists of invocations, see include/listing.lua
  KEYS[5] idempotency key (string), or the record again when the request has none
  KEYS[6] the tenant's line (sorted set by arrival)
  KEYS[7] BullMQ job (hash)

  ARGV[1] id
  ARGV[2] submitted at, ms
  ARGV[3] deadline, ms after submission
  ARGV[4] retention of the idempotency key after the end, ms; 0 without a key
  ARGV[5] number of ended invocations of the function that are listed
  ARGV[6] time for which they are listed after their submission, ms
  ARGV[7] now, ms
  ARGV[8] hash of function and body, which distinguishes requests with the same idempotency key; '' without a key
  ARGV[9] number of ended invocations of the tenant that are listed
  ARGV[10...] further fields and values of the record, including `prefix` (prefix of every key); then the job as JSON text, without its
    arrival

  Returns {1, arrival, quotas}; the same when the record already exists (a command sent twice).
          {0, id, quotas} when the idempotency key belongs to an invocation of the same function and body; this does not count as a request.
          {-2, id} when that invocation is of another function or body; nothing was stored.
          {-1, quota, quotas} when a quota has no room; only the refusal was counted (a command sent twice counts it again).
          {-5} when the version is not deployed (any more); nothing was stored.
          {-7} when the version is quarantined; nothing was stored.
          {-6, MiB} when the instance may take more memory than all runtimes together have; nothing was stored.
          A quota is four texts: name, function or '', limit, used; `quotas` are the quotas that limit this request.
]]
--- @include "./include/listing.lua"
--- @include "../../functions/scripts/include/unfinished.lua"
--- @include "../../quarantine/scripts/include/standing.lua"
--- @include "../../quotas/scripts/include/limits.lua"
--- @include "../../usage/scripts/include/counters.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"
--- @include "../../quotas/scripts/include/admission.lua"
--- @include "../../admission/scripts/include/admission.lua"

local record, arrivals, deadlines, listing, idempotency, waiting = unpack(KEYS)
local id, submittedAt, deadlineMs = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local idempotencyMs, now = tonumber(ARGV[4]), tonumber(ARGV[7])
-- The record fields from ARGV[10] on.
local given = {}
for i = 10, #ARGV - 1, 2 do
  given[ARGV[i]] = ARGV[i + 1]
end
local account, fn = given.account, given['function']

local known = redis.call('HGET', record, 'arrival')
if known then
  return {1, tonumber(known), unpack(quotaStates(countedUse(account, fn, now)))}
end
if idempotencyMs > 0 then
  local first = redis.call('GET', idempotency)
  if first then
    local firstId, fingerprint = string.match(first, '^(%S+) (.*)$')
    if fingerprint ~= ARGV[8] then
      return {-2, firstId}
    end
    return {0, firstId, unpack(quotaStates(countedUse(account, fn, now)))}
  end
end
if not isDeployed(given) then
  return {-5}
end
if standingOf(given.conductKey, given.tenant, now) == 'quarantined' then
  return {-7}
end
local memory = tonumber(redis.call('HGET', given.prefix .. ':admission:capacity', 'pages:#memory') or nil)
if memory and tonumber(given.memoryMb or 0) > memory then
  return {-6, memory}
end
local refusing, limits = admitRequest(account, fn, now, redis.call('ZCARD', waiting), RECORD_BYTES + #ARGV[#ARGV])
if refusing then
  local states = quotaStates(limits)
  return {-1, refusing.quota, refusing.fn, quotaText(refusing.limit), quotaText(refusing.used), unpack(states)}
end
-- The first write must be one that a Redis at its memory limit refuses.
local arrival = redis.call('INCR', arrivals)
if idempotencyMs > 0 then
  -- Keep the key at least until the deadline; the invocation's end sets the final expiry.
  redis.call('SET', idempotency, id .. ' ' .. ARGV[8], 'PX', idempotencyMs + deadlineMs)
  redis.call('HSET', record, 'idempotencyKey', idempotency, 'idempotencyMs', idempotencyMs)
end
redis.call('HSET', record, 'id', id, 'status', 'queued', 'arrival', arrival, 'epoch', 0, 'attempts', 0, 'seq', 0, 'bytes', 0,
  'submittedAt', ARGV[2], 'deadlineMs', ARGV[3], 'listing', listing, 'inputBytes', #ARGV[#ARGV], unpack(ARGV, 10, #ARGV - 1))
holdBytes(account, 'i:' .. id, RECORD_BYTES + #ARGV[#ARGV])
addUnfinished(given, id)
redis.call('ZADD', deadlines, submittedAt + deadlineMs, id)
listOpen(listing, fn, id, submittedAt, ARGV[9], ARGV[5], tonumber(ARGV[6]))
countRequest(account, fn, now, limits)
-- Create the BullMQ job as its runtime gets it; admission puts the job into BullMQ's lists.
redis.call('HSET', KEYS[7], 'name', 'invoke', 'data', '{"arrival":' .. arrival .. ',' .. string.sub(ARGV[#ARGV], 2), 'opts', '{}',
  'timestamp', ARGV[2], 'delay', 0, 'priority', 0)
enterLine(given.prefix, given.tenant, id, arrival, now)
return {1, arrival, unpack(quotaStates(limits))}
