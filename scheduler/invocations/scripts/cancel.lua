--[[
  Asks for an invocation to be cancelled: at once while it is queued, else by the runtime that owns it.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)

  ARGV[1..8] see include/end-arguments.lua
  ARGV[9] reason
  ARGV[10] data of the error event

  Returns {'cancelled'}, {'requested', runtime id}, {'ended'} or {'unknown'}. The first reason stays.
]]
--- @include "./include/end-arguments.lua"
--- @include "./include/end-invocation.lua"
--- @include "./include/platform-failure.lua"

local status, epoch, seq, runtimeId = unpack(redis.call('HMGET', KEYS[1], 'status', 'epoch', 'seq', 'runtimeId'))
if not status then
  return {'unknown'}
end
if status == 'running' then
  redis.call('HSETNX', KEYS[1], 'cancelReason', ARGV[9])
  return {'requested', runtimeId}
end
if status ~= 'queued' then
  return {'ended'}
end
redis.call('HSETNX', KEYS[1], 'cancelReason', ARGV[9])
platformFailure(endArguments(), epoch, seq, 'cancelled', ARGV[9], ARGV[10])
return {'cancelled'}
