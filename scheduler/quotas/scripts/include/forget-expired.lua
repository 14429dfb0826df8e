--- @include "./account.lua"
-- Maximum expired members that one call handles.
local FORGOTTEN_AT_ONCE = 256

-- Releases the bytes of members that have expired by now. The hash `usage` has the bytes of each member and their sum in the field `bytes`. The
-- sorted set `expiries` has the members by expiry time.
local function forgetExpired(account, usage, expiries, now)
  local forgotten = redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, FORGOTTEN_AT_ONCE)
  for _, member in ipairs(forgotten) do
    local bytes = tonumber(redis.call('HGET', usage, member) or 0)
    redis.call('HINCRBY', usage, 'bytes', -bytes)
    changeBytes(account, -bytes)
    redis.call('HDEL', usage, member)
    redis.call('ZREM', expiries, member)
  end
  -- Only the field `bytes` is left, which is 0.
  if #forgotten > 0 and redis.call('HLEN', usage) == 1 then
    redis.call('DEL', usage)
  end
end
