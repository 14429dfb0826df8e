--[[
  Removes a schedule whose function does not exist. The schedule stays when its function was deployed again, or when a schedule of another
  function has replaced it.

  KEYS[1] the tenant's schedules (hash)
  KEYS[2] the function (hash)

  ARGV[1] name of the schedule
  ARGV[2] name of the function

  Returns 1 removed, 0 not.
]]
local text = redis.call('HGET', KEYS[1], ARGV[1])
if not text or cjson.decode(text)['function'] ~= ARGV[2] or redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])
