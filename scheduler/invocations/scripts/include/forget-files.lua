--- @include "../../../quotas/scripts/include/account.lua"
-- Most ended invocations that one call handles.
local FORGOTTEN_AT_ONCE = 256

-- Releases the bytes of files that have expired by now; for `usage` and `expiries` see file-usage.lua.
local function forgetFilesOf(account, usage, expiries, now)
  local forgotten = redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, FORGOTTEN_AT_ONCE)
  for _, id in ipairs(forgotten) do
    local bytes = tonumber(redis.call('HGET', usage, id) or 0)
    redis.call('HINCRBY', usage, 'bytes', -bytes)
    changeBytes(account, -bytes)
    redis.call('HDEL', usage, id)
    redis.call('ZREM', expiries, id)
  end
  if #forgotten > 0 and redis.call('HLEN', usage) == 1 then
    redis.call('DEL', usage)
  end
end
