--[[
  Hands out waiting messages and drops those that have been handled. Taking twice with one cursor gives the same messages.

  KEYS[1] record (hash)
  KEYS[2] inbox (list)

  ARGV[1] cursor: index of the first message not handled yet; -1 for the oldest that waits
  ARGV[2] how many messages at most

  Returns {cursor of the first message handed out, 1 when no more can come after these, message...}.
]]
local status, closed, head, bytes = unpack(redis.call('HMGET', KEYS[1], 'status', 'inboxClosed', 'inboxHead', 'inboxBytes'))
local open = (status == 'queued' or status == 'running') and not closed
local cursor = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
head = tonumber(head or 0)

if status and cursor > head then
  local handled = redis.call('LPOP', KEYS[2], cursor - head)
  if handled then
    local freed = 0
    for _, message in ipairs(handled) do
      freed = freed + #message
    end
    head = head + #handled
    redis.call('HSET', KEYS[1], 'inboxHead', head, 'inboxBytes', tonumber(bytes or 0) - freed)
  end
end

local messages = redis.call('LRANGE', KEYS[2], 0, limit - 1)
local more = redis.call('LLEN', KEYS[2]) > #messages
return {head, (open or more) and 0 or 1, unpack(messages)}
