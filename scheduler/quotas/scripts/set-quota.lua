--[[
  Changes one setting of a tenant. Repeating the change has no further effect.

  KEYS[1] settings (hash), see include/limits.lua
  KEYS[2] notes on the settings (hash): field to JSON

  ARGV[1] field
  ARGV[2] permanent limit, or '' to remove setting and override
  ARGV[3] override, or ''
  ARGV[4] end of the override, ms
  ARGV[5] author and reason, as JSON text
  ARGV[6] maximum settings of a tenant

  Returns 1 changed, 0 there are too many (nothing was changed).
]]
local settings, notes, field = KEYS[1], KEYS[2], ARGV[1]

if ARGV[2] == '' and ARGV[3] == '' then
  redis.call('HDEL', settings, field)
  redis.call('HDEL', notes, field)
else
  local before = redis.call('HGET', settings, field)
  -- The mark `#counted` is no setting.
  local count = redis.call('HLEN', settings) - redis.call('HEXISTS', settings, '#counted')
  if not before and count >= tonumber(ARGV[6]) then
    return 0
  end
  local value = ARGV[2]
  if ARGV[3] ~= '' then
    value = string.match(before or '-', '^%S+') .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
  end
  redis.call('HSET', settings, field, value)
  redis.call('HSET', notes, field, ARGV[5])
end

-- Scripts that count use read the counted limits only when this mark is set.
local counted = false
for _, name in ipairs(redis.call('HKEYS', settings)) do
  counted = counted or string.find(name, '-per-', 1, true) ~= nil
end
if counted then
  redis.call('HSET', settings, '#counted', 1)
else
  redis.call('HDEL', settings, '#counted')
end
return 1
