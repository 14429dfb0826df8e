--[[
  Checks if a file of an invocation exists or may still come.

  KEYS[1] record (hash)
  KEYS[2] files (hash): name to JSON

  ARGV[1] name

  Returns 1 exists, 0 not yet, -1 does not exist and cannot come: the client has closed the session, or the invocation has ended (or is
  unknown).
]]
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
  return 1
end
local status, closed = unpack(redis.call('HMGET', KEYS[1], 'status', 'inboxClosed'))
return (status == 'queued' or status == 'running' or status == 'waiting') and not closed and 0 or -1
