--[[
  One version of a function.

  KEYS[1] function (hash)
  ARGV[1] version, or '' for the one that is served

  Returns its JSON text, or false.
]]
local version = ARGV[1]
if version == '' then
  version = redis.call('HGET', KEYS[1], 'current')
end
return version and redis.call('HGET', KEYS[1], 'version:' .. version)
