--- @include "../../../quotas/scripts/include/account.lua"
local LINES_FORGOTTEN_AT_ONCE = 256

-- The clock of this Redis server, by which its keys expire.
local function nowMs()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Releases the bytes of expired queues; queue-usage.lua describes `usage` and `expiries`.
local function forgetQueuesOf(account, usage, expiries)
  local forgotten = redis.call('ZRANGEBYSCORE', expiries, '-inf', nowMs(), 'LIMIT', 0, LINES_FORGOTTEN_AT_ONCE)
  for _, queue in ipairs(forgotten) do
    local bytes = tonumber(redis.call('HGET', usage, queue) or 0)
    redis.call('HINCRBY', usage, 'bytes', -bytes)
    changeBytes(account, -bytes)
    redis.call('HDEL', usage, queue)
    redis.call('ZREM', expiries, queue)
  end
  if #forgotten > 0 and redis.call('HLEN', usage) == 1 then
    redis.call('DEL', usage)
  end
end
