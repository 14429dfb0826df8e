-- Reads and writes hashes that have many fields.

-- Returns a table that reads each value when it is first used: a script uses few of the hosts and models of a large platform.
local function readOnce(read)
  local missing = {}
  return setmetatable({}, { __index = function(known, name)
    if missing[name] then
      return nil
    end
    local value = read(name)
    if value == nil then
      missing[name] = true
      return nil
    end
    known[name] = value
    return value
  end })
end

-- The fields of a hash whose names begin with `start`, by the rest of their names; `parse` turns each text into a value.
local function fieldsOf(key, start, parse)
  return readOnce(function(name)
    local value = redis.call('HGET', key, start .. name)
    return value and parse(value) or nil
  end)
end

-- Maximum number of values that one call passes to Redis: Lua's stack holds about 8,000.
local MOST_AT_ONCE = 4000

-- Sets fields of a hash (`set` alternates fields and values) and removes others.
local function write(key, set, dropped)
  for i = 1, #set, MOST_AT_ONCE do
    redis.call('HSET', key, unpack(set, i, math.min(#set, i + MOST_AT_ONCE - 1)))
  end
  for i = 1, #dropped, MOST_AT_ONCE do
    redis.call('HDEL', key, unpack(dropped, i, math.min(#dropped, i + MOST_AT_ONCE - 1)))
  end
end
