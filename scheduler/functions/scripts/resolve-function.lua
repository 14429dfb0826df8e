--[[
  Resolves a reference to a function: to one version, or to the versions of an alias.

  KEYS[1] function (hash), see include/alias.lua
  KEYS[2] function to use when the first lacks the reference; or none

  ARGV[1] version or alias, '' for `live`

  Returns false, or {index of the key, basis, versions as JSON texts…}, these in the order of the alias's shares. `basis`
  is the state of the alias as JSON text, or the version itself.
]]
--- @include "./include/serving.lua"
local i, basis = findServing(KEYS, ARGV[1])
if not i then
  return false
end
local reply = {i, basis}
local shares = string.sub(basis, 1, 1) == '{' and cjson.decode(basis).shares or {{ version = basis }}
for _, share in ipairs(shares) do
  reply[#reply + 1] = redis.call('HGET', KEYS[i], 'version:' .. share.version)
end
return reply
