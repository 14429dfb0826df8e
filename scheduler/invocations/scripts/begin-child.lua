--[[
  Stores the record of a child whose only attempt has begun. Its runtime runs the child at once, so the child enters no queue.

  KEYS[1] record (hash)
  KEYS[2] record of the parent (hash)
  KEYS[3] deadlines (sorted set)
  KEYS[4] prefix of the keys of the tenant's lists of invocations, see include/listing.lua
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

  Returns {1, epoch, number of the first event, standing (quarantine/scripts/include/standing.lua), attemptLimits (quotas/.../exceeded.lua)}
          {0, 'parent-ended' | 'already-ran' | 'not-deployed'}
          {-4, quota, limit, used} the tenant may keep no more bytes in Redis
]]
--- @include "./include/listing.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"
--- @include "../../usage/scripts/include/counters.lua"
--- @include "../../quotas/scripts/include/exceeded.lua"
--- @include "../../functions/scripts/include/unfinished.lua"
--- @include "../../quarantine/scripts/include/standing.lua"

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
