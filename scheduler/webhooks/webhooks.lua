-- Attempts of deliveries, and the sealed secrets of webhooks.

--- @script "note-attempt"
--[[
  Records an attempt to deliver the end of an invocation. Recording it twice is harmless.

  KEYS[1] record (hash)

  ARGV[1] number of the attempt, from 1
  ARGV[2] new status: pending | delivered | failed
  ARGV[3] HTTP status of the answer, or ''
  ARGV[4] why it failed, or ''
  ARGV[5] time of the next attempt (ms since the epoch), or ''

  Returns 1, or 0 when the record no longer exists.
]]
--- @include "../store/even-when-full.lua"
if redis.call('HEXISTS', KEYS[1], 'webhookUrl') == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'webhookAttempts', ARGV[1], 'webhookStatus', ARGV[2], 'webhookLastStatus', ARGV[3], 'webhookLastError', ARGV[4],
  'webhookNextAt', ARGV[5])
return 1

--- @script "reseal"
--[[
  Replaces a sealed secret by the same secret sealed under another key, unless it was rotated meanwhile.

  KEYS[1] a tenant's secret (string)

  ARGV[1] present value
  ARGV[2] new value

  Returns 1 replaced, 0 the value has changed.
]]
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
