--[[
  Cancels an invocation: at once while it is queued or waits for a person, else by a request to the runtime that owns it.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)
  KEYS[5] the reply to this call, see ../../store/scripts/once.lua

  ARGV[1..8] see include/end-arguments.lua
  ARGV[9] reason
  ARGV[10] data of the error event

  Returns {'cancelled'}, {'requested'} (the runtime was told), {'ended'} or {'unknown'}. The record keeps the first reason.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../store/scripts/once.lua"
--- @include "./include/end-arguments.lua"
--- @include "./include/end-invocation.lua"
--- @include "./include/platform-failure.lua"

local answered = answeredBefore(KEYS[5])
if answered then
  return answered
end
local status, epoch, seq = unpack(redis.call('HMGET', KEYS[1], 'status', 'epoch', 'seq'))
if not status then
  return {'unknown'}
end
if status == 'running' then
  redis.call('HSETNX', KEYS[1], 'cancelReason', ARGV[9])
  -- Store the cancel in the same step, so that the invocation's end finds and removes it. Redis keeps stored cancels for as long as events.
  local cancels, channel = unpack(redis.call('HMGET', KEYS[1], 'cancelsKey', 'cancelChannel'))
  if cancels then
    redis.call('HSET', cancels, ARGV[1], ARGV[9])
    redis.call('PEXPIRE', cancels, ARGV[6])
    redis.call('PUBLISH', channel, ARGV[1] .. '\0' .. ARGV[9])
  end
  return {'requested'}
end
if status ~= 'queued' and status ~= 'waiting' then
  return {'ended'}
end
redis.call('HSETNX', KEYS[1], 'cancelReason', ARGV[9])
platformFailure(endArguments(), epoch, seq, 'cancelled', ARGV[9], ARGV[10])
return answerOnce(KEYS[5], {'cancelled'})
