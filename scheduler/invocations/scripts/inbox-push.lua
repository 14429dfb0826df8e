--[[
  Adds a message to the inbox of an invocation that has not ended.

  KEYS[1] record (hash)
  KEYS[2] inbox (list)

  ARGV[1] inbox channel
  ARGV[2] a token of this message, so that a command sent twice adds it once
  ARGV[3] the message: its token, one byte of kind, then its content
  ARGV[4] how many messages may wait
  ARGV[5] how many bytes may wait

  Returns 1 added, -1 ended, -2 no such record, -3 closed, -4 full.
]]
local status, closed, token, bytes = unpack(redis.call('HMGET', KEYS[1], 'status', 'inboxClosed', 'inboxToken', 'inboxBytes'))
if not status then
  return -2
end
if token == ARGV[2] then
  return 1
end
if status ~= 'queued' and status ~= 'running' then
  return -1
end
if closed then
  return -3
end
bytes = tonumber(bytes or 0) + #ARGV[3]
if redis.call('LLEN', KEYS[2]) >= tonumber(ARGV[4]) or bytes > tonumber(ARGV[5]) then
  return -4
end
redis.call('RPUSH', KEYS[2], ARGV[3])
redis.call('HSET', KEYS[1], 'inboxBytes', bytes, 'inboxToken', ARGV[2])
redis.call('PUBLISH', ARGV[1], 'message')
return 1
