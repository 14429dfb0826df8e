--[[
  Replaces a stored function version by the same version with resealed values, unless it was changed or deleted meanwhile.

  KEYS[1] function (hash), see ../../functions/scripts/include/alias.lua
  KEYS[2] removed versions of the function that still drain (hash)

  ARGV[1] version
  ARGV[2] the version as JSON text, as stored now
  ARGV[3] its new JSON text

  Returns 1 replaced, 0 the stored version has changed.
]]
local replaced = 0
for key, field in pairs({[KEYS[1]] = 'version:' .. ARGV[1], [KEYS[2]] = ARGV[1]}) do
  if redis.call('HGET', key, field) == ARGV[2] then
    redis.call('HSET', key, field, ARGV[3])
    replaced = 1
  end
end
return replaced
