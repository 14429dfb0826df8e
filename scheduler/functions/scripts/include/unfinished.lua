-- A set holds the unfinished invocations of each function version, so that a removed version stays until the last of them ends. A record's
-- fields name the keys: `unfinishedKey` (set of ids), and `functionKey` (hash) of a function that must have the version for them to begin.
local function isDeployed(given)
  return not given.functionKey or redis.call('HEXISTS', given.functionKey, 'version:' .. given.version) == 1
end

local function addUnfinished(given, id)
  redis.call('SADD', given.unfinishedKey, id)
end

local function removeUnfinished(unfinished, id)
  redis.call('SREM', unfinished, id)
end
