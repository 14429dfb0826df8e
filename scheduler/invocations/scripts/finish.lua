--[[
  Ends an invocation for its running attempt. Exactly one terminal event is written, even with concurrent callers.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)

  ARGV[1..8] see include/end-arguments.lua
  ARGV[9] epoch of the attempt
  ARGV[10] number of the terminal event, larger than that of any event that a reader was shown
  ARGV[11] event: result | error
  ARGV[12] data
  ARGV[13] status: succeeded | failed | cancelled
  ARGV[14] failure code, or ''
  ARGV[15] failure message, or ''
  ARGV[16] usage as JSON text, or ''
  ARGV[17] most bytes of all events of the root's family; an error is always accepted
  ARGV[18] usage of the attempt as it is counted, see ../../usage/scripts/include/metering.lua, or ''
  ARGV[19] number of the log's last event, as the attempt knows it

  Returns 1 ended by this call, or by the same call made before; 0 stale epoch (or no such record); -1 ended otherwise; -2 the family has
          no room for this result.
          {-3, number of the log's last event} when that differs from ARGV[19].
          {-4, quota, limit, used} the tenant may keep no more bytes in Redis; an error is always accepted.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/end-arguments.lua"
--- @include "./include/end-invocation.lua"
--- @include "./include/family.lua"
--- @include "../../quotas/scripts/include/bytes-limit.lua"

local status, epoch, seq, root, ownBytes, account = unpack(redis.call('HMGET', KEYS[1], 'status', 'epoch', 'seq', 'rootKey', 'familyBytes',
  'account'))
if not status then
  return 0
end
if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
  if epoch == ARGV[9] and seq == ARGV[10] then
    return 1
  end
  return -1
end
if status ~= 'running' or epoch ~= ARGV[9] then
  return 0
end
if tonumber(ARGV[19]) ~= tonumber(seq) then
  return {-3, tonumber(seq)}
end

local family, familyBytes = familyOf(KEYS[1], root, ownBytes)
familyBytes = familyBytes + #ARGV[12] + EVENT_BYTES
if ARGV[11] == 'result' and familyBytes > tonumber(ARGV[17]) then
  return -2
end
local refusal = ARGV[11] == 'result' and account and bytesRefusal(account, #ARGV[12] + EVENT_BYTES, tonumber(ARGV[4]))
if refusal then
  return {-4, unpack(refusal)}
end
redis.call('HSET', family, 'familyBytes', familyBytes)

local a = endArguments()
a.epoch = epoch
a.seq = ARGV[10]
a.event = ARGV[11]
a.data = ARGV[12]
a.status = ARGV[13]
a.code = ARGV[14]
a.message = ARGV[15]
a.usage = ARGV[16]
a.added = newUsage(KEYS[1], epoch, ARGV[18])
endInvocation(a)
return 1
