--[[
  Puts the same version of a function, its values sealed under another key, in place of a stored one, unless that was changed or is gone.

  KEYS[1] function (hash), see ../../functions/scripts/include/alias.lua
  KEYS[2] removed versions of the function (hash)

  ARGV[1] version
  ARGV[2] the version as JSON text, as it is there
  ARGV[3] as it is to be there

  Returns 1 replaced, 0 something else is there.
]]
local replaced = 0
for key, field in pairs({[KEYS[1]] = 'version:' .. ARGV[1], [KEYS[2]] = ARGV[1]}) do
  if redis.call('HGET', key, field) == ARGV[2] then
    redis.call('HSET', key, field, ARGV[3])
    replaced = 1
  end
end
return replaced
