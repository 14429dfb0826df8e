--- @include "./counters.lua"

-- An attempt reports cumulative usage. The record keeps each attempt's last report, and only the increase is counted, so a repeated or
-- outdated report counts nothing. The record has the field `usageEpoch`, the attempt that reported last, `usageNow`, the usage of this attempt, and
-- `usageBefore`, the sum over the attempts before it. A usage is a text of METERED whole numbers, one for each of METERED_FIELDS of metered.ts.
local METERED = 8
local METERED_PATTERN = '^' .. string.rep('(%d+) ', METERED - 1) .. '(%d+)$'
local METERED_FORMAT = string.rep('%.0f ', METERED - 1) .. '%.0f'

local function meteredNumbers(text)
  local numbers = {string.match(text or '', METERED_PATTERN)}
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
