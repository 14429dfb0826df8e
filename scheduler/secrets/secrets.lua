-- Sealed secrets and environments.

--- @script "set-secret"
--[[
  Stores a new value of a secret. A repeated call only returns the reply.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] the tenant's sealed values (hash)
  KEYS[3] reply to this call (string)

  ARGV[1] name
  ARGV[2] sealed value
  ARGV[3] time of the change, ISO 8601
  ARGV[4] author of the change
  ARGV[5] maximum secrets of a tenant
  ARGV[6] maximum stored values of a tenant
  ARGV[7] how long the reply is kept, ms

  Returns the revision, -1 for too many secrets, -2 for too many values.
]]
local answered = redis.call('GET', KEYS[3])
if answered then
  return tonumber(answered)
end
-- The hash holds one more field, which counts the revisions.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[5]) then
  return -1
end
if redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[6]) then
  return -2
end
local revision = redis.call('HINCRBY', KEYS[1], '', 1)
redis.call('SET', KEYS[3], revision, 'PX', ARGV[7])
redis.call('HSET', KEYS[2], ARGV[1] .. '@' .. revision, ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({ revision = revision, changedAt = ARGV[3], changedBy = ARGV[4] }))
return revision

--- @script "pin-secrets"
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
-- Stores the new pins first, so that a full Redis refuses them. After an HDEL it would accept them (../store/even-when-full.lua).
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

--- @script "remove-secret"
--[[
  Removes a secret, but not its values: they stay while function versions refer to them. A repeated call only returns the reply.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] reply to this call (string)

  ARGV[1] name
  ARGV[2] how long the reply is kept, ms

  Returns 1 removed, 0 there is no such secret.
]]
--- @include "../store/even-when-full.lua"

if redis.call('EXISTS', KEYS[2]) == 1 then
  return 1
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1

--- @script "drop-values"
--[[
  Drops sealed values that no function version referred to when the caller checked, unless they are now current or pinned.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] the tenant's sealed values (hash)
  KEYS[3] pinned revisions (hash)

  ARGV[1] now, ms
  ARGV[2, 4, …] names
  ARGV[3, 5, …] their revisions

  Returns the number of dropped values.
]]
--- @include "../store/even-when-full.lua"

local dropped = 0
for i = 2, #ARGV, 2 do
  local field = ARGV[i] .. '@' .. ARGV[i + 1]
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local current = stored and cjson.decode(stored).revision == tonumber(ARGV[i + 1])
  local pinned = tonumber(redis.call('HGET', KEYS[3], field) or '0') > tonumber(ARGV[1])
  if not current and not pinned then
    dropped = dropped + redis.call('HDEL', KEYS[2], field)
  end
end
return dropped

--- @script "reseal"
--[[
  Replaces a sealed value by the same value sealed under another key, unless it was dropped meanwhile.

  KEYS[1] sealed values of a tenant (hash)

  ARGV[1] name and revision of the value
  ARGV[2] present sealed value
  ARGV[3] new sealed value

  Returns 1 replaced, 0 the sealed value has changed.
]]
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1

--- @script "reseal-version"
--[[
  Replaces a stored function version by the same version with resealed values, unless it was changed or deleted meanwhile.

  KEYS[1] function (hash), see ../functions/functions.lua
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
