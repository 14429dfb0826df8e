--[[
  Hands out waiting messages and drops those that have been handled. Taking twice with one token gives the same messages. Messages are told
  apart by their tokens: should Redis have lost some that were handled, others that came in their place are not taken for them.

  KEYS[1] record (hash)
  KEYS[2] inbox (list)

  ARGV[1] token of the last message handled, 16 bytes; '' for none
  ARGV[2] how many messages at most; no more than that are ever handled between two calls

  Returns {1 when no more can come after these, message...}.
]]
local status, closed, bytes = unpack(redis.call('HMGET', KEYS[1], 'status', 'inboxClosed', 'inboxBytes'))
local open = (status == 'queued' or status == 'running') and not closed
local limit = tonumber(ARGV[2])

local messages = redis.call('LRANGE', KEYS[2], 0, limit - 1)
if status and ARGV[1] ~= '' then
  local handled, freed = 0, 0
  for index, message in ipairs(messages) do
    freed = freed + #message
    if string.sub(message, 1, 16) == ARGV[1] then
      handled = index
      break
    end
  end
  if handled > 0 then
    redis.call('LPOP', KEYS[2], handled)
    redis.call('HSET', KEYS[1], 'inboxBytes', tonumber(bytes or 0) - freed)
    messages = redis.call('LRANGE', KEYS[2], 0, limit - 1)
  end
end
local more = redis.call('LLEN', KEYS[2]) > #messages
return {(open or more) and 0 or 1, unpack(messages)}
