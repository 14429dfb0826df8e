--[[
  Puts a file of an invocation that has not ended. A name that is taken gets the new content. Putting the same twice is harmless.

  KEYS[1] record (hash)
  KEYS[2] files (hash): name to JSON
  KEYS[3] contents (hash): name to bytes

  ARGV[1] inbox channel, on which whoever waits for a file hears of it
  ARGV[2] name
  ARGV[3] content
  ARGV[4] JSON text of the file
  ARGV[5] how many files there may be
  ARGV[6] how many bytes they may have in all
  ARGV[7] epoch of the inferlet's attempt, or '' for the client

  Returns 1 put, 0 no such record, -1 ended, or not that attempt's any more, -2 too many files, -3 too many bytes.
]]
local record, files, contents = KEYS[1], KEYS[2], KEYS[3]
local name, content, epoch = ARGV[2], ARGV[3], ARGV[7]
local status, current, bytes = unpack(redis.call('HMGET', record, 'status', 'epoch', 'fileBytes'))
if not status then
  return 0
end
if status ~= 'running' and (status ~= 'queued' or epoch ~= '') then
  return -1
end
if epoch ~= '' and epoch ~= current then
  return -1
end
local before = redis.call('HSTRLEN', contents, name)
local total = tonumber(bytes or 0) - before + #content
if redis.call('HEXISTS', files, name) == 0 and redis.call('HLEN', files) >= tonumber(ARGV[5]) then
  return -2
end
if total > tonumber(ARGV[6]) then
  return -3
end
redis.call('HSET', contents, name, content)
redis.call('HSET', files, name, ARGV[4])
redis.call('HSET', record, 'fileBytes', total, 'filesKey', files, 'fileContentsKey', contents)
redis.call('PUBLISH', ARGV[1], 'file')
return 1
