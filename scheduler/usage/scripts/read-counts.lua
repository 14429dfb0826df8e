--[[
  Reads the counts of windows.

  KEYS[1] counts of each field's last minute (hash), see include/counters.lua

  ARGV[1] prefix of the keys of the tenant's usage
  ARGV[2] field: `*` for the tenant, a function, or '' for every one
  ARGV[3...] pairs: window, its number

  Returns a list for each window: a field, its value, the next field …; empty for a window without counts. The value of a field `f:…`, `r:…` or
  `t:…` is one number, and that of any other field the list of its counts (include/counters.lua). Once it has read MOST_FIELDS fields, the script
  leaves out the remaining windows: the caller reads them with its next call.
]]
--- @include "./include/counters.lua"

-- Redis takes about 10 µs for a field, and serves no other client meanwhile.
local MOST_FIELDS = 1000

local account, wanted = ARGV[1], ARGV[2]

local function fieldsOf(key)
  local all = wanted == '' and redis.call('HGETALL', key) or {wanted, redis.call('HGET', key, wanted)}
  local fields = {}
  for i = 1, #all, 2 do
    fields[all[i]] = all[i + 1] or nil
  end
  return fields
end

local latest = {}
for field, packed in pairs(fieldsOf(KEYS[1])) do
  latest[field] = cmsgpack.unpack(packed)
end

-- For each kind of window, the fields by the number of the window that contains their last minute. To search all fields for each window would take
-- long.
local fieldsByNumber = {}
local function latestIn(window, number)
  if not fieldsByNumber[window] then
    fieldsByNumber[window] = {}
    for field, counts in pairs(latest) do
      local at = windowNumber(window, counts[COUNTS + 1] * MINUTE_MS)
      fieldsByNumber[window][at] = fieldsByNumber[window][at] or {}
      table.insert(fieldsByNumber[window][at], field)
    end
  end
  return fieldsByNumber[window][number] or {}
end

local windows, read = {}, 0
for i = 3, #ARGV, 2 do
  local window, number = ARGV[i], tonumber(ARGV[i + 1])
  local found = {}
  for field, value in pairs(fieldsOf(account .. ':usage:' .. window .. ':' .. ARGV[i + 1])) do
    -- Only the fields with one number have a colon in second place.
    found[field] = string.sub(field, 2, 2) == ':' and tonumber(value) or unpackCounts(value)
  end
  for _, field in ipairs(latestIn(window, number)) do
    found[field] = addCounts(found[field] or unpackCounts(nil), latest[field])
  end
  local flat = {}
  for field, value in pairs(found) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  windows[#windows + 1] = flat
  read = read + #flat / 2
  if read >= MOST_FIELDS then
    break
  end
end
return windows
