--[[
  Points an alias at versions in one step. Does nothing when the alias already has these shares.

  KEYS[1] function (hash), see include/alias.lua
  KEYS[2] the reply to this call, see ../../store/scripts/once.lua

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
--- @include "../../store/scripts/once.lua"
--- @include "./include/alias.lua"
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
adoptCurrent(fn, ARGV[4])
local text = writeAlias(fn, alias, state, ARGV[4])
redis.call('PUBLISH', ARGV[6], ARGV[7])
return answerOnce(KEYS[2], {1, text})
