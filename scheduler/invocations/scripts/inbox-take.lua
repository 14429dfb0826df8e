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
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../quotas/scripts/include/account.lua"
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
