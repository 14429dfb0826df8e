--[[
  Changes one setting of a tenant: sets the permanent limit and removes the override, or sets the override and keeps the permanent limit, or removes
  both. A repeated call has no further effect.

  KEYS[1] settings (hash): field to limits, see include/limits.lua
  KEYS[2] notes on the settings (hash): field to the JSON text of ARGV[5]

  ARGV[1] field of the setting, in both hashes
  ARGV[2] new permanent limit, or '' for no new one
  ARGV[3] new override (temporary limit), or '' for no new one. If ARGV[2] is '' too, the script removes the setting.
  ARGV[4] end of the override, ms since the epoch
  ARGV[5] author and reason of the change, as JSON text
  ARGV[6] maximum number of settings of a tenant

  Returns 1 after the change. Returns 0 and changes nothing when a new setting would exceed ARGV[6].
]]
local settings, notes, field = KEYS[1], KEYS[2], ARGV[1]

if ARGV[2] == '' and ARGV[3] == '' then
  redis.call('HDEL', settings, field)
  redis.call('HDEL', notes, field)
else
  local before = redis.call('HGET', settings, field)
  -- The hash may also hold the mark `#counted`, which is not a setting.
  local count = redis.call('HLEN', settings) - redis.call('HEXISTS', settings, '#counted')
  if not before and count >= tonumber(ARGV[6]) then
    return 0
  end
  local value = ARGV[2]
  if ARGV[3] ~= '' then
    -- Keeps the permanent limit, the first word of the old value; `-` stands for none.
    value = string.match(before or '-', '^%S+') .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
  end
  redis.call('HSET', settings, field, value)
  redis.call('HSET', notes, field, ARGV[5])
end

-- Sets the mark when a counted limit (per minute, day or month) exists, else removes the mark. Without it, scripts do not read counted limits.
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
