--[[
  Finds the versions that a reference to a function serves. The reference is a version, which serves itself, or an
  alias, which serves one or more versions.

  KEYS[1] function (hash), see include/alias.lua
  KEYS[2] a second function, for a reference that the first one lacks; this key may be absent

  ARGV[1] version or alias, '' for `live`

  Returns false when none of the functions has the reference, else {index, basis, record…}:
    index: place in KEYS of the function that has the reference
    basis: the alias's state as JSON text, or the version itself
    record: JSON text of a version, one for each version that the reference serves, in the order of the alias's shares
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
