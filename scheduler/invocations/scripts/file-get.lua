--[[
  Returns one file of an invocation.

  KEYS[1] files (hash): name to JSON
  KEYS[2] contents (hash): name to bytes

  ARGV[1] name

  Returns {JSON text, content}, or {} when there is no such file.
]]
local info, content = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1])
return info and content and {info, content} or {}
