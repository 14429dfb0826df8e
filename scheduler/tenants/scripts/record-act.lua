--[[
  Writes an administrative act into the log of its tenant and into that of all tenants. Of a call that is sent twice the second only answers.

  KEYS[1] acts of the tenant (stream)
  KEYS[2] acts of all tenants (stream)
  KEYS[3] reply to this call (string)

  ARGV[1] entries that the first keeps, about
  ARGV[2] entries that the second keeps, about
  ARGV[3] how long the reply is remembered, ms
  ARGV[4…] fields and values

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"

if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('SET', KEYS[3], '1', 'PX', ARGV[3])
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, 4))
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, 4))
end
return 1
