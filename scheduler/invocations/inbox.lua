-- Messages to an invocation.

--- @script "inbox-push"
--[[
  Adds a message to the inbox of an invocation that has not ended. When space is short, it drops the handled messages kept for another
  attempt; no further attempt is then possible.

  KEYS[1] record (hash); see `inbox-take`. `inboxCut` is set once kept messages were dropped
  KEYS[2] inbox (list)
  KEYS[3] the reply to this call, see ../store/store.lua

  ARGV[1] inbox channel
  ARGV[2] the message: its token, one byte of kind, then its content
  ARGV[3] maximum messages that may wait
  ARGV[4] maximum bytes that may wait or be kept
  ARGV[5] now, ms

  Returns 1 added, -1 ended, -2 no such record, -3 closed, -4 full, {-5, quota, limit, used} the tenant may keep no more bytes in Redis.
]]
--- @include "../quotas/account.lua"
--- @include "../store/store.lua"
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

--- @script "inbox-take"
--[[
  Returns waiting messages and releases the handled ones: it drops them, or keeps them when another attempt may come. Two calls with the
  same token return the same messages. A call names the last handled message by its token, not by its place in the list: after Redis lost
  handled messages, newer messages take their places.

  KEYS[1] record (hash); `inboxKept` number of kept messages at the head of the inbox, `inboxKeptBytes` their bytes, part of `inboxBytes`
  KEYS[2] inbox (list)

  ARGV[1] token of the last message handled, 16 bytes; '' for none
  ARGV[2] maximum messages to return, which also bounds the messages handled between two calls
  ARGV[3] epoch of the attempt that takes messages, or '' for any running attempt

  Returns {1 when no message can come after the returned ones, else 0, message...}; {1} to an attempt that is over.
]]
--- @include "../store/even-when-full.lua"
--- @include "../quotas/account.lua"
local status, closed, bytes, kept, keptBytes, restartable, cut, epoch, account, id = unpack(redis.call('HMGET', KEYS[1], 'status', 'inboxClosed',
  'inboxBytes', 'inboxKept', 'inboxKeptBytes', 'restartable', 'inboxCut', 'epoch', 'account', 'id'))
if ARGV[3] ~= '' and status and epoch ~= ARGV[3] then
  return {1}
end
local open = (status == 'queued' or status == 'running' or status == 'waiting') and not closed
local limit = tonumber(ARGV[2])
kept = tonumber(kept or 0)

local messages = redis.call('LRANGE', KEYS[2], kept, kept + limit - 1)
if status and ARGV[1] ~= '' then
  local handled, freed = 0, 0
  for index, message in ipairs(messages) do
    freed = freed + #message
    if string.sub(message, 1, 16) == ARGV[1] then
      handled = index
      break
    end
  end
  if handled > 0 and restartable == '1' and not cut then
    kept = kept + handled
    redis.call('HSET', KEYS[1], 'inboxKept', kept, 'inboxKeptBytes', tonumber(keptBytes or 0) + freed)
  elseif handled > 0 then
    redis.call('LPOP', KEYS[2], handled)
    redis.call('HSET', KEYS[1], 'inboxBytes', tonumber(bytes or 0) - freed)
    if account then
      holdBytes(account, 'i:' .. id, -freed)
    end
  end
  if handled > 0 then
    messages = redis.call('LRANGE', KEYS[2], kept, kept + limit - 1)
  end
end
local more = redis.call('LLEN', KEYS[2]) - kept > #messages
return {(open or more) and 0 or 1, unpack(messages)}

--- @script "inbox-close"
--[[
  Ends the client's side of an inbox. The inferlet still gets the waiting messages.

  KEYS[1] record (hash)
  ARGV[1] inbox channel

  Returns 1, or 0 when there is no such record.
]]
--- @include "../store/even-when-full.lua"
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'inboxClosed', 1)
redis.call('PUBLISH', ARGV[1], 'closed')
return 1
