--- @include "./counters.lua"

-- Usage of an attempt is cumulative: the record keeps the last word of each attempt, and what is new of it is counted. So the same word twice,
-- or an older one after a newer one, counts nothing. Of the record: `usageEpoch` attempt that spoke last, `usageNow` its usage, `usageBefore`
-- the sum of those before it; texts of as many whole numbers as METERED_FIELDS of metered.ts has.
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

-- What is new of an attempt's usage ('' for none), by place in the counters. The record has `speaker`, `told` and `before` in its fields
-- usageEpoch, usageNow and usageBefore; what it is to have then is added to `fields`.
local function usageChange(fields, speaker, told, before, epoch, usage)
  local added = {}
  if usage == '' then
    return added
  end
  local current = meteredNumbers(told)
  if speaker ~= epoch then
    if speaker then
      local earlier = meteredNumbers(before)
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
  if next(added) or speaker ~= epoch then
    for _, value in ipairs({'usageEpoch', epoch, 'usageNow', string.format(METERED_FORMAT, unpack(current))}) do
      fields[#fields + 1] = value
    end
  end
  return added
end

-- Writes down an attempt's usage; what is new of it, and whose it is.
local function newUsage(record, epoch, usage)
  local speaker, told, before, account, fn = unpack(redis.call('HMGET', record, 'usageEpoch', 'usageNow', 'usageBefore', 'account',
    'function'))
  local fields = {}
  local added = usageChange(fields, speaker, told, before, epoch, usage)
  if #fields > 0 then
    redis.call('HSET', record, unpack(fields))
  end
  return added, account, fn
end

-- Writes down an attempt's usage, and counts what is new of it.
local function meter(record, epoch, usage, now)
  local added, account, fn = newUsage(record, epoch, usage)
  if account and next(added) then
    count(account, fn, now, added)
  end
end
