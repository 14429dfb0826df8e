-- Counts of usage in windows of time, and the metered usage of attempts.
--- @include "../store/store.lua"

-- Usage by windows of UTC: hashes `<account>:usage:<window>:<number of the window>`, with a field `*` for the tenant and one for each of
-- its functions, up to a bound. Each value is a MessagePack array: requests, invocations, succeeded, failed, cancelled, then the
-- METERED_FIELDS of metered.ts. All are whole numbers (tokens, µs, page-ms), so that sums are exact.
-- The hash `<account>:usage:latest` holds, for each field, the counts of its last minute (the last one in which it counted), followed by the number
-- of this minute. When a script counts in a later minute, it first adds these counts to the windows that contain the last minute; readers add them
-- when they read. So most calls write one hash instead of four. Once a minute, a script moves and drops some older fields, so that the hash does
-- not keep every function that ever ran.
-- A minute's hash also counts `f:<failure code>`, `r:<quota that refused a request>` and `t:<bucket of the time to a first message>`.

-- Indexes in the array of counts. BEFORE_METERED is the last index before the METERED_FIELDS, COUNTS the length of the array.
local REQUESTS, INVOCATIONS, SUCCEEDED, FAILED, CANCELLED, BEFORE_METERED = 1, 2, 3, 4, 5, 5
local INPUT_TOKENS, OUTPUT_TOKENS, CACHED_TOKENS, GPU_US, CPU_US = 6, 7, 8, 9, 10
local COUNTS = 13

-- Minimum number of fields of `<account>:usage:latest` that one call of `dropLatest` looks at.
local DROPPED_AT_LEAST = 32
local MINUTE_MS, HOUR_MS, DAY_MS = 60000, 3600000, 86400000
local KEPT_MS = {minute = 3 * HOUR_MS, hour = 40 * DAY_MS, day = 400 * DAY_MS, month = 400 * DAY_MS}

-- Months since year 0 of the proleptic Gregorian calendar (H. Hinnant, chrono-compatible low-level date algorithms, civil_from_days).
local function monthNumber(now)
  local days = math.floor(now / DAY_MS) + 719468
  local era = math.floor(days / 146097)
  local dayOfEra = days - era * 146097
  local year = math.floor((dayOfEra - math.floor(dayOfEra / 1460) + math.floor(dayOfEra / 36524) - math.floor(dayOfEra / 146096)) / 365)
  local dayOfYear = dayOfEra - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  -- Counted from March; January and February belong to the next year.
  local month = math.floor((5 * dayOfYear + 2) / 153)
  return (year + era * 400) * 12 + month + 2
end

local function windowNumber(window, now)
  if window == 'minute' then
    return math.floor(now / MINUTE_MS)
  elseif window == 'hour' then
    return math.floor(now / HOUR_MS)
  elseif window == 'day' then
    return math.floor(now / DAY_MS)
  end
  return monthNumber(now)
end

local function windowKey(account, window, now)
  return account .. ':usage:' .. window .. ':' .. windowNumber(window, now)
end

local function unpackCounts(packed)
  return packed and cmsgpack.unpack(packed) or {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
end

local function latestKey(account)
  return account .. ':usage:latest'
end

-- Adds the counts of a minute to those of a window that holds it.
local function addCounts(counts, latest)
  for i = 1, COUNTS do
    counts[i] = counts[i] + latest[i]
  end
  return counts
end

-- True when a field has a last minute (`latest`) and the window of this number contains it.
local function isIn(latest, window, number)
  return latest and windowNumber(window, latest[COUNTS + 1] * MINUTE_MS) == number
end

-- The counts of the tenant and of the function in a window.
local function readCounts(account, fn, window, now)
  local number = windowNumber(window, now)
  local stored = redis.call('HMGET', windowKey(account, window, now), '*', fn)
  local latest = redis.call('HMGET', latestKey(account), '*', fn)
  local counts = {}
  for i = 1, 2 do
    counts[i] = unpackCounts(stored[i])
    local minute = latest[i] and cmsgpack.unpack(latest[i])
    if isIn(minute, window, number) then
      addCounts(counts[i], minute)
    end
  end
  return counts[1], counts[2]
end

-- Adds a field's last minute to the windows that hold it.
local addToWindows

do
-- Once a window has MAX_FIELDS fields (`*` and fields such as `f:<code>` included), it adds up the counts of all further functions in the field
-- OTHERS, which is not a valid name of a function. A tenant has fewer functions at a time, but may deploy and remove functions for ever, and the
-- counts of removed functions stay.
local MAX_FIELDS, OTHERS = 2048, '-'

local function fieldIn(key, field)
  if field == '*' or redis.call('HLEN', key) < MAX_FIELDS or redis.call('HEXISTS', key, field) == 1 then
    return field
  end
  return OTHERS
end

function addToWindows(account, field, latest)
  for window, kept in pairs(KEPT_MS) do
    local key = windowKey(account, window, latest[COUNTS + 1] * MINUTE_MS)
    local there = redis.call('EXISTS', key) == 1
    local counted = fieldIn(key, field)
    redis.call('HSET', key, counted, cmsgpack.pack(addCounts(unpackCounts(redis.call('HGET', key, counted)), latest)))
    if not there then
      redis.call('PEXPIRE', key, kept)
    end
  end
end
end

-- The counts of a field in this minute. Counts of an earlier minute are first added to their windows.
local function latestCounts(account, field, packed, minute)
  local latest = packed and cmsgpack.unpack(packed)
  if latest and latest[COUNTS + 1] == minute then
    return latest
  end
  if latest then
    addToWindows(account, field, latest)
  end
  latest = unpackCounts(nil)
  latest[COUNTS + 1] = minute
  return latest
end

-- Looks at some fields, moves the counts of those from earlier minutes to their windows, and drops these fields. A script calls it once a minute.
-- Each call looks at an eighth of all fields or more, so the hash grows only to about the fields that eight minutes add.
local function dropLatest(account, minute)
  local key = latestKey(account)
  local some = math.max(DROPPED_AT_LEAST, math.ceil(redis.call('HLEN', key) / 8))
  local fields = redis.call('HRANDFIELD', key, some, 'WITHVALUES')
  for i = 1, #fields, 2 do
    local latest = cmsgpack.unpack(fields[i + 1])
    if latest[COUNTS + 1] ~= minute then
      addToWindows(account, fields[i], latest)
      redis.call('HDEL', key, fields[i])
    end
  end
end

-- Adds to the counts of the tenant and the function.
local function addUsage(account, fn, now, added)
  local minute = windowNumber('minute', now)
  local packedAll, packedOne = unpack(redis.call('HMGET', latestKey(account), '*', fn))
  local first = not packedAll or cmsgpack.unpack(packedAll)[COUNTS + 1] ~= minute
  if packedAll and first then
    dropLatest(account, minute)
    -- `dropLatest` may have dropped these two fields.
    packedAll, packedOne = unpack(redis.call('HMGET', latestKey(account), '*', fn))
  end
  local all = latestCounts(account, '*', packedAll, minute)
  local one = latestCounts(account, fn, packedOne, minute)
  for i, n in pairs(added) do
    all[i] = all[i] + n
    one[i] = one[i] + n
  end
  redis.call('HSET', latestKey(account), '*', cmsgpack.pack(all), fn, cmsgpack.pack(one))
  if first then
    redis.call('PEXPIRE', latestKey(account), KEPT_MS.month)
  end
end

-- Adds 1 to a field of the tenant's minute.
local function countInMinute(account, now, field)
  local key = windowKey(account, 'minute', now)
  redis.call('HINCRBY', key, field, 1)
  redis.call('PEXPIRE', key, KEPT_MS.minute)
end

-- The use of the quotas of a kind (COUNTED of ../quotas/limits.lua), from counts. `countedUse` of names.ts computes the same.
local function usedOf(kind, counts)
  if kind == 'requests' then
    return counts[REQUESTS]
  elseif kind == 'tokens' then
    return math.max(0, counts[INPUT_TOKENS] - counts[CACHED_TOKENS]) + counts[OUTPUT_TOKENS]
  elseif kind == 'gpu-ms' then
    return counts[GPU_US] / 1000
  elseif kind == 'cpu-ms' then
    return counts[CPU_US] / 1000
  end
  return error('no use is known for the quota ' .. kind)
end

-- An attempt reports cumulative usage. The record keeps each attempt's last report, and only the increase is counted, so a repeated or
-- outdated report counts nothing. The record has the field `usageEpoch`, the attempt that reported last, `usageNow`, the usage of this attempt, and
-- `usageBefore`, the sum over the attempts before it. A usage is a text of METERED whole numbers, one for each of METERED_FIELDS of metered.ts.
local METERED = 8
local METERED_FORMAT = '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f'

local function meteredNumbers(text)
  local numbers = {string.match(text or '', '^' .. string.rep('(%d+) ', METERED - 1) .. '(%d+)$')}
  for i = 1, METERED do
    numbers[i] = tonumber(numbers[i] or 0)
  end
  return numbers
end

-- The increase in usage that an attempt's report `usage` ('' for none) brings, by index in the counts; and the attempt's usage in all, a list.
-- Appends the changed ones of the record's fields `usageEpoch`, `usageNow` and `usageBefore`, with their new values, to `fields`.
local function usageChange(fields, usageEpoch, usageNow, usageBefore, epoch, usage)
  local added = {}
  if usage == '' then
    return added
  end
  local current = meteredNumbers(usageNow)
  if usageEpoch ~= epoch then
    if usageEpoch then
      local earlier = meteredNumbers(usageBefore)
      for i = 1, METERED do
        earlier[i] = earlier[i] + current[i]
      end
      fields[#fields + 1] = 'usageBefore'
      fields[#fields + 1] = string.format(METERED_FORMAT, unpack(earlier))
    end
    current = meteredNumbers(nil)
  end
  for i, n in ipairs(meteredNumbers(usage)) do
    if n > current[i] then
      added[BEFORE_METERED + i] = n - current[i]
      current[i] = n
    end
  end
  if next(added) or usageEpoch ~= epoch then
    for _, value in ipairs({'usageEpoch', epoch, 'usageNow', string.format(METERED_FORMAT, unpack(current))}) do
      fields[#fields + 1] = value
    end
  end
  return added, current
end

-- Stores an attempt's usage; returns the increase, and the account and function to charge.
local function newUsage(record, epoch, usage)
  local usageEpoch, usageNow, usageBefore, account, fn = unpack(redis.call('HMGET', record, 'usageEpoch', 'usageNow', 'usageBefore', 'account',
    'function'))
  local fields = {}
  local added = usageChange(fields, usageEpoch, usageNow, usageBefore, epoch, usage)
  if #fields > 0 then
    redis.call('HSET', record, unpack(fields))
  end
  return added, account, fn
end

-- Stores an attempt's usage, and counts the increase.
local function meter(record, epoch, usage, now)
  local added, account, fn = newUsage(record, epoch, usage)
  if account and next(added) then
    addUsage(account, fn, now, added)
  end
end

-- Counts the ends of invocations, with the increase in their usage. An ended invocation of a client is no longer open.
local ENDS = {succeeded = SUCCEEDED, failed = FAILED, cancelled = CANCELLED}

-- Ends by account and function, gathered until `countEnds` counts them.
local endsCounted = {}

local function countEnd(account, fn, ofClient, status, code, now, added)
  local name = account .. '\0' .. fn
  local ends = endsCounted[name] or {account = account, fn = fn, open = 0, added = {}}
  endsCounted[name] = ends
  ends.open = ends.open + (ofClient and 1 or 0)
  ends.added[ENDS[status]] = (ends.added[ENDS[status]] or 0) + 1
  for place, n in pairs(added) do
    ends.added[place] = (ends.added[place] or 0) + n
  end
  if status == 'failed' then
    countInMinute(account, now, 'f:' .. code)
  end
end

local function closeEnded(account, fn, open)
  redis.call('HINCRBY', account .. ':open', '*', -open)
  if redis.call('HINCRBY', account .. ':open', fn, -open) == 0 then
    redis.call('HDEL', account .. ':open', fn)
  end
end

local function countEnds(now)
  for _, ends in pairs(endsCounted) do
    isolated(addUsage, ends.account, ends.fn, now, ends.added)
    if ends.open > 0 then
      isolated(closeEnded, ends.account, ends.fn, ends.open)
    end
  end
  endsCounted = {}
end

-- Counts the time from the submission of an invocation to its first message, once: in the bucket whose upper end is 2^(bucket / 4) ms, as
-- `bucketEnd` of metered.ts computes it. Children are not counted: a child's client is its parent.

-- The upper end of the last bucket is 2^21 ms, 35 minutes. The bucket also counts longer times, so quantiles show at most 35 minutes.
local LAST_BUCKET = 84

local function countFirstMessage(record, account, now)
  local submittedAt, parent = unpack(redis.call('HMGET', record, 'submittedAt', 'parent'))
  if not account or parent or redis.call('HSETNX', record, 'firstMessageAt', now) == 0 then
    return
  end
  local ms = math.max(1, now - tonumber(submittedAt))
  countInMinute(account, now, 't:' .. math.min(LAST_BUCKET, math.ceil(4 * math.log(ms) / math.log(2))))
end

--- @script "read-counts"
--[[
  Reads the counts of windows.

  KEYS[1] counts of each field's last minute (hash), see above

  ARGV[1] prefix of the keys of the tenant's usage
  ARGV[2] field: `*` for the tenant, a function, or '' for every one
  ARGV[3...] pairs: window, its number

  Returns a list for each window: a field, its value, the next field …; empty for a window without counts. The value of a field `f:…`, `r:…` or
  `t:…` is one number, and that of any other field the list of its counts (above). Once it has read MOST_FIELDS fields, the script
  leaves out the remaining windows: the caller reads them with its next call.
]]

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
