--- @include "../../../store/scripts/gather.lua"

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
