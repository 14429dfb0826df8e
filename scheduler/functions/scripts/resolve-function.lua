--[[
  Resolves a reference to a function: to one version, or to the versions of an alias.

  KEYS[1] function (hash), see include/alias.lua
  KEYS[2] function to use when the first lacks the reference; or none

  ARGV[1] version or alias, '' for `live`

  Returns false, or {which of the keys, state of the alias or '', version as JSON text…}, in the order of the alias's shares.
]]
local reference = ARGV[1]
for i, fn in ipairs(KEYS) do
  local version = reference ~= '' and redis.call('HGET', fn, 'version:' .. reference)
  if version then
    return {i, '', version}
  end
  local alias = reference == '' and 'live' or reference
  local state = redis.call('HGET', fn, 'alias:' .. alias)
  if state then
    local reply = {i, state}
    for _, share in ipairs(cjson.decode(state).shares) do
      reply[#reply + 1] = redis.call('HGET', fn, 'version:' .. share.version)
    end
    return reply
  end
  -- Before there were aliases, `current` named the one version in service.
  local current = alias == 'live' and redis.call('HGET', fn, 'current')
  version = current and redis.call('HGET', fn, 'version:' .. current)
  if version then
    return {i, '', version}
  end
end
return false
