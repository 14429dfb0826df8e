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

-- Writes down an attempt's usage ('' for none); what is new of it, by place in the counters, and whose it is.
local function newUsage(record, epoch, usage)
  local added = {}
  if usage == '' then
    return added
  end
  local speaker, now, before, account, fn = unpack(redis.call('HMGET', record, 'usageEpoch', 'usageNow', 'usageBefore', 'account',
    'function'))
  local current = meteredNumbers(now)
  if speaker ~= epoch then
    if speaker then
      local earlier = meteredNumbers(before)
      for i = 1, METERED do
        earlier[i] = earlier[i] + current[i]
      end
      redis.call('HSET', record, 'usageBefore', string.format(METERED_FORMAT, unpack(earlier)))
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
    redis.call('HSET', record, 'usageEpoch', epoch, 'usageNow', string.format(METERED_FORMAT, unpack(current)))
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
