--[[
  Adds a message to the inbox of an invocation that has not ended. When space is short, it drops the handled messages kept for another
  attempt; no further attempt is then possible.

  KEYS[1] record (hash); see inbox-take.lua. `inboxCut` is set once kept messages were dropped
  KEYS[2] inbox (list)
  KEYS[3] the reply to this call, see ../../store/scripts/once.lua

  ARGV[1] inbox channel
  ARGV[2] the message: its token, one byte of kind, then its content
  ARGV[3] maximum messages that may wait
  ARGV[4] maximum bytes that may wait or be kept
  ARGV[5] now, ms

  Returns 1 added, -1 ended, -2 no such record, -3 closed, -4 full, {-5, quota, limit, used} the tenant may keep no more bytes in Redis.
]]
--- @include "../../quotas/scripts/include/bytes-limit.lua"
--- @include "../../store/scripts/once.lua"
local answered = answeredBefore(KEYS[3])
if answered then
  return answered
end
local status, closed, bytes, kept, keptBytes, account, id = unpack(redis.call('HMGET', KEYS[1], 'status', 'inboxClosed', 'inboxBytes',
  'inboxKept', 'inboxKeptBytes', 'account', 'id'))
if not status then
  return -2
end
if status ~= 'queued' and status ~= 'running' and status ~= 'waiting' then
  return -1
end
if closed then
  return -3
end
bytes, kept, keptBytes = tonumber(bytes or 0) + #ARGV[2], tonumber(kept or 0), tonumber(keptBytes or 0)
local most = tonumber(ARGV[4])
if redis.call('LLEN', KEYS[2]) - kept >= tonumber(ARGV[3]) or bytes - keptBytes > most then
  return -4
end
local refusal = account and bytesRefusal(account, #ARGV[2], tonumber(ARGV[5]))
if refusal then
  return {-5, unpack(refusal)}
end
local added = #ARGV[2]
redis.call('RPUSH', KEYS[2], ARGV[2])
if bytes > most then
  redis.call('LTRIM', KEYS[2], kept, -1)
  redis.call('HDEL', KEYS[1], 'inboxKept', 'inboxKeptBytes')
  redis.call('HSET', KEYS[1], 'inboxCut', 1)
  bytes, added = bytes - keptBytes, added - keptBytes
end
if account then
  holdBytes(account, 'i:' .. id, added)
end
redis.call('HSET', KEYS[1], 'inboxBytes', bytes)
redis.call('PUBLISH', ARGV[1], 'message')
return answerOnce(KEYS[3], 1)
