--[[
  Returns the current revisions of secrets, and pins their values until a given time: a deploy needs them before a stored version refers to them.
  Drops the tenant's pins that have ended.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] pinned revisions (hash)

  ARGV[1] now, ms
  ARGV[2] end of the pins, ms since the epoch; '' pins nothing
  ARGV[3…] names

  Returns the revisions in the order of the names, 0 for an unknown secret. With an unknown secret, the script pins nothing.
]]
local revisions, missing = {}, false
for i = 3, #ARGV do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local revision = stored and cjson.decode(stored).revision or 0
  missing = missing or revision == 0
  revisions[#revisions + 1] = revision
end
if missing or ARGV[2] == '' then
  return revisions
end
-- Stores the new pins first, so that a full Redis refuses them. After an HDEL it would accept them (../../store/scripts/even-when-full.lua).
for i, revision in ipairs(revisions) do
  redis.call('HSET', KEYS[2], ARGV[i + 2] .. '@' .. string.format('%d', revision), ARGV[2])
end
local pins = redis.call('HGETALL', KEYS[2])
for i = 1, #pins, 2 do
  if tonumber(pins[i + 1]) <= tonumber(ARGV[1]) then
    redis.call('HDEL', KEYS[2], pins[i])
  end
end
return revisions
