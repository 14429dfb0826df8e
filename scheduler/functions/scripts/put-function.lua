--[[
  Stores a version of a function, and points an alias and a tag at it. The component must be stored already; Redis keeps it as long as a
  version uses it. A removed version that still drains is deployed again.

  KEYS[1] names of the tenant's functions (set)
  KEYS[2] function (hash), see include/alias.lua
  KEYS[3] component (string)
  KEYS[4] users of the component (set)
  KEYS[5] removed versions of the function (hash)
  KEYS[6] functions with removed versions (hash)
  KEYS[7] deployed functions (set)
  KEYS[8..10] usage of the tenant's stored values, usage and expiries of its files, see ../../quotas/scripts/include/storage.lua
  KEYS[11] the reply to this call, see ../../store/scripts/once.lua
  KEYS[12] accounts that hold an upload of the component (set)

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
]]
--- @include "../../store/scripts/once.lua"
--- @include "./include/alias.lua"
--- @include "../../quotas/scripts/include/storage.lua"
local functions, fn, component, users, removed, removals, deployed = unpack(KEYS)
local version, alias, tag = ARGV[2], ARGV[6], ARGV[8]
local answered = answeredBefore(KEYS[11])
if answered then
  return answered
end

if redis.call('EXISTS', component) == 0 then
  return {-1}
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
redis.call('SADD', functions, ARGV[1])
redis.call('SADD', deployed, ARGV[5])
local created = redis.call('HSETNX', fn, 'version:' .. version, ARGV[3])
redis.call('HDEL', removals, ARGV[5] .. '@' .. version)
if redis.call('HDEL', removed, version) == 1 and redis.call('EXISTS', removed) == 0 then
  redis.call('HDEL', removals, ARGV[5])
end
adoptCurrent(fn, ARGV[10])
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
