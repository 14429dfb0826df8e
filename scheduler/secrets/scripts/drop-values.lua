--[[
  Drops sealed values that no function version referred to when the caller checked, unless they are now current or pinned.

  KEYS[1] the tenant's secrets (hash)
  KEYS[2] the tenant's sealed values (hash)
  KEYS[3] pinned revisions (hash)

  ARGV[1] now, ms
  ARGV[2, 4, …] names
  ARGV[3, 5, …] their revisions

  Returns the number of dropped values.
]]
--- @include "../../store/scripts/even-when-full.lua"

local dropped = 0
for i = 2, #ARGV, 2 do
  local field = ARGV[i] .. '@' .. ARGV[i + 1]
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local current = stored and cjson.decode(stored).revision == tonumber(ARGV[i + 1])
  local pinned = tonumber(redis.call('HGET', KEYS[3], field) or '0') > tonumber(ARGV[1])
  if not current and not pinned then
    dropped = dropped + redis.call('HDEL', KEYS[2], field)
  end
end
return dropped
