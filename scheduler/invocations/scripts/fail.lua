--[[
  Ends an invocation with an error of the platform, for example when the invocation's runtime has died, or when the
  invocation's deadline has passed. The invocation gets the next epoch, so that its last runtime can write no more.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)

  ARGV[1..8] see include/end-arguments.lua
  ARGV[9] failure code
  ARGV[10] failure message
  ARGV[11] data of the error event
  ARGV[12] a runtime: the script leaves running attempts of all other runtimes alone; '' for attempts of any runtime

  Returns {tenant, function} when this call ended it, -1 ended before, 0 no such record, -2 left alone.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/end-arguments.lua"
--- @include "./include/end-invocation.lua"
--- @include "./include/platform-failure.lua"

local status, epoch, seq, runtimeId, tenant, fn = unpack(redis.call('HMGET', KEYS[1],
  'status', 'epoch', 'seq', 'runtimeId', 'tenant', 'function'))
if not status then
  redis.call('ZREM', KEYS[4], ARGV[1])
  return 0
end
if status == 'succeeded' or status == 'failed' or status == 'cancelled' then
  return -1
end
if ARGV[12] ~= '' and status == 'running' and runtimeId ~= ARGV[12] then
  return -2
end
platformFailure(endArguments(), epoch, seq, ARGV[9], ARGV[10], ARGV[11])
return {tenant or '', fn or ''}
