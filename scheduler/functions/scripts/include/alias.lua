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

-- Earlier releases of Pie had no aliases: they named the version in service in the field `current`. Turns this field into the alias `live`.
local function adoptCurrent(fn, limit)
  local current = redis.call('HGET', fn, 'current')
  if not current then
    return
  end
  redis.call('HDEL', fn, 'current')
  local version = redis.call('HGET', fn, 'version:' .. current)
  if version and redis.call('HEXISTS', fn, 'alias:live') == 0 then
    local at = string.format('%.0f', cjson.decode(version).createdAt)
    writeAlias(fn, 'live', '{"shares":[{"version":"' .. current .. '","weight":100}],"at":' .. at .. ',"by":""}', limit)
  end
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
    elseif fields[i] == 'current' and fields[i + 1] == version then
      found[#found + 1] = 'live'
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
