--[[
  Notes an attempt to tell the end of an invocation. Noting the same one twice is harmless.

  KEYS[1] record (hash)

  ARGV[1] number of the attempt, from 1
  ARGV[2] status from here on: pending | delivered | failed
  ARGV[3] HTTP status of the answer, or ''
  ARGV[4] why it failed, or ''
  ARGV[5] when the next one is made (ms since the epoch), or ''

  Returns 1, or 0 when there is no such record any more.
]]
--- @include "../../store/scripts/even-when-full.lua"
if redis.call('HEXISTS', KEYS[1], 'webhookUrl') == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'webhookAttempts', ARGV[1], 'webhookStatus', ARGV[2], 'webhookLastStatus', ARGV[3], 'webhookLastError', ARGV[4],
  'webhookNextAt', ARGV[5])
return 1
