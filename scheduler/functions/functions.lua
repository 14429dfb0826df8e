-- Versions of functions, their aliases and their components.
--- @include "../store/store.lua"

-- A function is a hash. Its field `version:<version>` holds the JSON text of a version, and `alias:<alias>` the JSON text of an alias's present
-- state. Its field `revision` holds the number of the last change of any alias. A separate list holds the last states of an alias, newest
-- first, the present one included.
local function historyOf(fn, alias)
  return fn .. ':history:' .. alias
end

local function sameShares(a, b)
  if #a ~= #b then
    return false
  end
  local weights = {}
  for _, share in ipairs(a) do
    weights[share.version] = share.weight
  end
  for _, share in ipairs(b) do
    if weights[share.version] ~= share.weight then
      return false
    end
  end
  return true
end

-- `state` is the JSON text of an alias's state without its revision.
local function writeAlias(fn, alias, state, limit)
  local revision = redis.call('HINCRBY', fn, 'revision', 1)
  local text = '{"revision":' .. revision .. ',' .. string.sub(state, 2)
  redis.call('HSET', fn, 'alias:' .. alias, text)
  redis.call('LPUSH', historyOf(fn, alias), text)
  redis.call('LTRIM', historyOf(fn, alias), 0, tonumber(limit) - 1)
  return text
end

-- The names of those aliases of a function that serve the given version.
local function aliasesOf(fn, version)
  local found = {}
  local fields = redis.call('HGETALL', fn)
  for i = 1, #fields, 2 do
    local alias = string.match(fields[i], '^alias:(.*)$')
    if alias then
      for _, share in ipairs(cjson.decode(fields[i + 1]).shares) do
        if share.version == version then
          found[#found + 1] = alias
        end
      end
    end
  end
  return found
end

local function countOf(fn, prefix)
  local count = 0
  for _, field in ipairs(redis.call('HKEYS', fn)) do
    if string.sub(field, 1, #prefix) == prefix then
      count = count + 1
    end
  end
  return count
end

-- A set holds the unfinished invocations of each function version, so that a removed version stays until the last of them ends. `given`
-- is a table of the invocation's record. Two of its fields name keys: `unfinishedKey` is the set, and `functionKey`, if present, the hash of the
-- function that must have the version at creation. The changes are gathered: call `runGathered` after the last one.
local function isDeployed(given)
  return not given.functionKey or redis.call('HEXISTS', given.functionKey, 'version:' .. given.version) == 1
end

local function addUnfinished(given, id)
  gather('SADD', given.unfinishedKey, id)
end

local function removeUnfinished(unfinished, id)
  gather('SREM', unfinished, id)
end

-- Finds the first of the functions (keys of hashes, see above) in which `reference` names a version or an alias ('' for `live`). Returns that
-- function's index and the text that decides which versions the reference serves: the alias's state as JSON, or the version itself. Returns
-- nothing when no function has the reference.
local function findServing(functions, reference)
  local alias = reference == '' and 'live' or reference
  for i, fn in ipairs(functions) do
    if reference ~= '' and redis.call('HEXISTS', fn, 'version:' .. reference) == 1 then
      return i, reference
    end
    local state = redis.call('HGET', fn, 'alias:' .. alias)
    if state then
      return i, state
    end
  end
end

--- @script "put-function"
--[[
  Stores a version of a function, and points an alias and a tag at it. The component must be stored already; Redis keeps it as long as a
  version uses it. A removed version that still drains is deployed again.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash), see above
  KEYS[3] component (string)
  KEYS[4] users of the component (set)
  KEYS[5] removed versions of the function (hash)
  KEYS[6] functions with removed versions (hash)
  KEYS[7] deployed functions (set)
  KEYS[8..10] usage of the tenant's stored values, usage and expiries of its files, see ../quotas/account.lua
  KEYS[11] the reply to this call, see ../store/store.lua
  KEYS[12] accounts that hold an upload of the component (set)
  KEYS[13] the engine of a script (string), and
  KEYS[14] its users (set); the same as KEYS[3] and KEYS[4] for a component

  ARGV[1] name
  ARGV[2] version
  ARGV[3] the version as JSON text
  ARGV[4] this version's entry among the users of the component
  ARGV[5] <tenant>/<name>
  ARGV[6] alias that serves the version afterwards, or ''
  ARGV[7] state of that alias and of the tag as JSON text, without its revision
  ARGV[8] tag, or ''
  ARGV[9] 1: an existing alias stays unchanged when the version was already deployed
  ARGV[10] how many states of an alias are kept
  ARGV[11] how many aliases a function may have
  ARGV[12] channel of changes
  ARGV[13] prefix of the keys of the tenant's quotas
  ARGV[14] bytes of the component and of the version's JSON text
  ARGV[15] now, ms
  ARGV[16] how many functions the tenant may have
  ARGV[17] how many versions a function may have, draining ones included
  ARGV[18] hash of the component
  ARGV[19] bytes of the component's compiled files
  ARGV[20] how many bytes the records of the tenant's versions may have

  Returns {1, alias} new version, {0, alias} the version existed; `alias` is the present state of the alias, '' without one.
      Refusals, after which nothing is stored:
      {-1} the component is not stored.
      {-2, version} the tag belongs to that version.
      {-3} the function would have more aliases than it may have.
      {-4, quota, limit, used} the quota has no room for the version.
      {-5} the tenant has as many functions as it may have.
      {-6} the function has as many versions as it may have.
      {-7} the records of the tenant's versions would be larger than they may be.
      {-8} the engine is not stored.
]]
--- @include "../quotas/account.lua"
local functions, fn, component, users, removed, removals, deployed = unpack(KEYS)
local version, alias, tag = ARGV[2], ARGV[6], ARGV[8]
local answered = answeredBefore(KEYS[11])
if answered then
  return answered
end

if redis.call('EXISTS', component) == 0 then
  return {-1}
end
if redis.call('EXISTS', KEYS[13]) == 0 then
  return {-8}
end
local added = 0
for _, name in ipairs({alias, tag}) do
  local state = name ~= '' and redis.call('HGET', fn, 'alias:' .. name)
  if name ~= '' and not state then
    added = added + 1
  end
  if name == tag and state then
    local shares = cjson.decode(state).shares
    if #shares > 1 or shares[1].version ~= version then
      return {-2, shares[1].version}
    end
  end
end
if added > 0 and countOf(fn, 'alias:') + added > tonumber(ARGV[11]) then
  return {-3}
end

local known = redis.call('HEXISTS', fn, 'version:' .. version) == 1 or redis.call('HEXISTS', removed, version) == 1
if redis.call('SISMEMBER', functions, ARGV[1]) == 0 and redis.call('SCARD', functions) >= tonumber(ARGV[16]) then
  return {-5}
end
if not known and countOf(fn, 'version:') + redis.call('HLEN', removed) >= tonumber(ARGV[17]) then
  return {-6}
end
local account, bytes = ARGV[13], tonumber(ARGV[14])
if not known and recordBytes(account) + #ARGV[3] > tonumber(ARGV[20]) then
  return {-7}
end
-- The bytes of the uploaded component now count as the version's. A refusal gives them back to the upload.
local upload = 'u:' .. ARGV[18]
local uploaded = releaseBytes(account, upload)
local onDisk = tonumber(ARGV[19])
local refusal = not known and
  (diskRefusal(account, onDisk, tonumber(ARGV[15])) or storageRefusal(account, KEYS[8], KEYS[9], KEYS[10], bytes, tonumber(ARGV[15])))
if refusal then
  holdBytes(account, upload, uploaded or 0)
  return {-4, unpack(refusal)}
end
-- `countComponent` comes before the writes that take no memory: a full Redis refuses its write, which ends the script before any change.
countComponent(account, ARGV[1] .. '@' .. version, bytes, #ARGV[3], onDisk)
redis.call('ZREM', account .. ':redis-ends', upload)
redis.call('SREM', KEYS[12], account)
redis.call('PERSIST', component)
redis.call('SADD', users, ARGV[4])
redis.call('PERSIST', KEYS[13])
redis.call('SADD', KEYS[14], ARGV[4])
redis.call('SADD', functions, ARGV[1])
redis.call('SADD', deployed, ARGV[5])
local created = redis.call('HSETNX', fn, 'version:' .. version, ARGV[3])
redis.call('HDEL', removals, ARGV[5] .. '@' .. version)
if redis.call('HDEL', removed, version) == 1 and redis.call('EXISTS', removed) == 0 then
  redis.call('HDEL', removals, ARGV[5])
end
if tag ~= '' and redis.call('HEXISTS', fn, 'alias:' .. tag) == 0 then
  writeAlias(fn, tag, '{"tag":true,' .. string.sub(ARGV[7], 2), ARGV[10])
end
local state = ''
if alias ~= '' then
  state = redis.call('HGET', fn, 'alias:' .. alias)
  local keep = state and ((created == 0 and ARGV[9] == '1') or
    sameShares(cjson.decode(state).shares, cjson.decode(ARGV[7]).shares))
  if not keep then
    state = writeAlias(fn, alias, ARGV[7], ARGV[10])
  end
end
redis.call('PUBLISH', ARGV[12], ARGV[5])
return answerOnce(KEYS[11], {created, state})

--- @script "resolve-function"
--[[
  Finds the versions that a reference to a function serves. The reference is a version, which serves itself, or an
  alias, which serves one or more versions.

  KEYS[1] function (hash), see above
  KEYS[2] a second function, for a reference that the first one lacks; this key may be absent

  ARGV[1] version or alias, '' for `live`

  Returns false when none of the functions has the reference, else {index, basis, record…}:
    index: place in KEYS of the function that has the reference
    basis: the alias's state as JSON text, or the version itself
    record: JSON text of a version, one for each version that the reference serves, in the order of the alias's shares
]]
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

--- @script "set-alias"
--[[
  Points an alias at versions in one step. Does nothing when the alias already has these shares.

  KEYS[1] function (hash), see above
  KEYS[2] the reply to this call, see ../store/store.lua

  ARGV[1] alias
  ARGV[2] the alias's new state as JSON text, without the revision
  ARGV[3] the revision that the alias must have before the change, 0 for a new alias; '' for any
  ARGV[4] how many states are kept
  ARGV[5] how many aliases a function may have
  ARGV[6] channel of changes
  ARGV[7] <tenant>/<name>

  Returns {1, state} the alias has this state now.
      Refusals, after which nothing has changed:
      {0} there is no such function.
      {-1, revision} the alias has this other revision, 0 when there is no such alias.
      {-2, version} the function has no such version (any more).
      {-3} the function has as many aliases as it may have.
      {-4} the alias is a tag, which can name only one version.
]]
local fn, alias = KEYS[1], ARGV[1]
local answered = answeredBefore(KEYS[2])
if answered then
  return answered
end
if redis.call('EXISTS', fn) == 0 then
  return {0}
end
local present = redis.call('HGET', fn, 'alias:' .. alias)
local before = present and cjson.decode(present)
local shares = cjson.decode(ARGV[2]).shares
if before and sameShares(before.shares, shares) then
  return {1, present}
end
local revision = before and before.revision or 0
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= revision then
  return {-1, revision}
end
for _, share in ipairs(shares) do
  if redis.call('HEXISTS', fn, 'version:' .. share.version) == 0 then
    return {-2, share.version}
  end
end
if not before and countOf(fn, 'alias:') >= tonumber(ARGV[5]) then
  return {-3}
end
local state = ARGV[2]
if before and before.tag then
  if #shares > 1 then
    return {-4}
  end
  state = '{"tag":true,' .. string.sub(state, 2)
end
local text = writeAlias(fn, alias, state, ARGV[4])
redis.call('PUBLISH', ARGV[6], ARGV[7])
return answerOnce(KEYS[2], {1, text})

--- @script "remove-alias"
--[[
  Removes an alias with its history.

  KEYS[1] function (hash), see above
  KEYS[2] the reply to this call, see ../store/store.lua

  ARGV[1] alias
  ARGV[2] channel of changes
  ARGV[3] <tenant>/<name>

  Returns 1 removed, 0 there is no such alias.
]]
--- @include "../store/even-when-full.lua"
local answered = answeredBefore(KEYS[2])
if answered then
  return answered
end
redis.call('DEL', historyOf(KEYS[1], ARGV[1]))
local removed = redis.call('HDEL', KEYS[1], 'alias:' .. ARGV[1])
redis.call('PUBLISH', ARGV[2], ARGV[3])
return answerOnce(KEYS[2], removed)

--- @script "put-blob"
--[[
  Stores the bytes of a component. They expire unless a function version uses them by then.

  KEYS[1] component (string)
  KEYS[2] users of the component (set)
  KEYS[3] accounts that hold an upload of the component (set)
  ARGV[1] bytes
  ARGV[2] how long they are kept without a user, ms
  ARGV[3] now, ms
  ARGV[4] account of the uploading tenant: the prefix of the keys of its quotas
  ARGV[5] hash of the bytes

  Returns 1 stored, 0 they were there already, {-4, quota, limit, used} the tenant may keep no more bytes in Redis.
]]
--- @include "../quotas/account.lua"
local account, now, holder = ARGV[4], tonumber(ARGV[3]), 'u:' .. ARGV[5]
-- `holder` is the upload's entry in the account. A component that a version uses counts with that version instead.
if redis.call('SCARD', KEYS[2]) == 0 and redis.call('HEXISTS', accountKey(account), holder) == 0 then
  local refusal = bytesRefusal(account, #ARGV[1], now)
  if refusal then
    return {-4, unpack(refusal)}
  end
  holdBytes(account, holder, #ARGV[1])
end
if redis.call('HEXISTS', accountKey(account), holder) == 1 then
  endHolder(account, holder, now + tonumber(ARGV[2]))
  redis.call('SADD', KEYS[3], account)
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('SCARD', KEYS[2]) == 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1

--- @script "remove-blob"
--[[
  Removes a tenant's upload of a component, and the component when neither a version nor another tenant's upload needs it.

  KEYS[1] component (string)
  KEYS[2] users of the component (set)
  KEYS[3] accounts that hold an upload of the component (set)

  ARGV[1] prefix of the keys of the uploading tenant's quotas
  ARGV[2] hash of the component
  ARGV[3] now, ms

  Returns 1 removed, 0 it is needed or not there.
]]
--- @include "../store/even-when-full.lua"
--- @include "../quotas/account.lua"
local account, holder, now = ARGV[1], 'u:' .. ARGV[2], tonumber(ARGV[3])
releaseBytes(account, holder)
redis.call('ZREM', account .. ':redis-ends', holder)
redis.call('SREM', KEYS[3], account)
if redis.call('SCARD', KEYS[2]) > 0 then
  return 0
end
for _, other in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  local ends = redis.call('ZSCORE', other .. ':redis-ends', holder)
  -- The other tenant's deploy still builds from these bytes.
  if ends and tonumber(ends) > now then
    return 0
  end
end
return redis.call('DEL', KEYS[1])
