-- How many ended invocations one call forgets.
local FORGOTTEN_AT_ONCE = 256

-- Gives back what the files had that are forgotten by now: of `usage` and `expiries`, see file-usage.lua.
local function forgetFilesOf(usage, expiries, now)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, FORGOTTEN_AT_ONCE)) do
    redis.call('HINCRBY', usage, 'bytes', -tonumber(redis.call('HGET', usage, id) or 0))
    redis.call('HDEL', usage, id)
    redis.call('ZREM', expiries, id)
  end
  if redis.call('HLEN', usage) == 1 then
    redis.call('DEL', usage)
  end
end
