--- @include "../../../usage/scripts/include/metering.lua"
--- @include "./lost-tail.lua"

-- METERED_FIELDS of metered.ts: the names of the usage fields, and for each the number of units that Redis counts (such as µs) in one unit of
-- the field (such as ms).
local USAGE_NAMES = {'inputTokens', 'outputTokens', 'cachedTokens', 'gpuMs', 'cpuMs', 'wallMs', 'queuedMs', 'pageSeconds'}
local USAGE_UNITS = {1, 1, 1, 1000, 1000, 1000, 1000, 1000}

-- Returns `data`, the JSON text of an error event, with an added member `usage`: the sum over all attempts that have reported usage.
local function withUsage(record, data)
  local usageBefore, usageNow = unpack(redis.call('HMGET', record, 'usageBefore', 'usageNow'))
  -- Each report sets `usageNow`, so without it there is no `usageBefore` either.
  if not usageNow then
    return data
  end
  local earlier, members = meteredNumbers(usageBefore), {}
  for i, n in ipairs(meteredNumbers(usageNow)) do
    local sum = n + earlier[i]
    if sum > 0 then
      local format = USAGE_UNITS[i] == 1 and '"%s":%.0f' or '"%s":%.3f'
      members[#members + 1] = string.format(format, USAGE_NAMES[i], sum / USAGE_UNITS[i])
    end
  end
  return string.sub(data, 1, -2) .. ',"usage":{' .. table.concat(members, ',') .. '}}'
end

-- Ends an invocation with an error of the platform. The end belongs to the next epoch, so that the runtime of the last attempt can write no more.
-- `a` holds the arguments of endInvocation; `epoch` and `seq` are those of the record; `data` is the error event's JSON text.
local function platformFailure(a, epoch, seq, code, message, data)
  a.epoch = tonumber(epoch) + 1
  a.seq = passLostTail(a, seq) + 1
  a.event = 'error'
  a.data = withUsage(a.record, data)
  a.status = (code == 'cancelled' or code == 'superseded') and 'cancelled' or 'failed'
  a.code = code
  a.message = message
  endInvocation(a, readRecord(a.record))
  settleEnds(a.now)
end
