-- Schedules and the times at which they fired.

--- @script "put-schedule"
--[[
  Stores a schedule of a tenant, or replaces the one of its name.

  KEYS[1] the tenant's schedules (hash)
  KEYS[2] the function of the tenant that the schedule invokes (hash), or '' for a function of the platform
  KEYS[3] tenants that have or had schedules (set)

  ARGV[1] name
  ARGV[2] entry, JSON text
  ARGV[3] maximum schedules of the tenant
  ARGV[4] tenant

  Returns 1 stored, 0 the tenant has as many as it may, -1 there is no such function.
]]
if KEYS[2] ~= '' and redis.call('EXISTS', KEYS[2]) == 0 then
  return -1
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[3], ARGV[4])
return 1

--- @script "note-time"
--[[
  Stores the outcome of a schedule's last firing. A schedule that was removed, replaced or suspended meanwhile stays as it is.

  KEYS[1] the tenant's schedules (hash)

  ARGV[1] name
  ARGV[2] id of the schedule that fired
  ARGV[3] `LastTime` of rules.ts, JSON text

  Returns 1 noted, 0 not.
]]
local text = redis.call('HGET', KEYS[1], ARGV[1])
local entry = text and cjson.decode(text)
if not entry or entry.id ~= ARGV[2] or (type(entry.last) == 'table' and entry.last.suspended == true) then
  return 0
end
-- Changes the text instead of encoding the entry again: cjson would write an empty list as an object. Quotes within the entry's texts are
-- escaped, so the search finds only the member `last`, which is the last member.
local last = string.find(text, ',"last":', 1, true)
redis.call('HSET', KEYS[1], ARGV[1], string.sub(text, 1, (last or #text) - 1) .. ',"last":' .. ARGV[3] .. '}')
return 1

--- @script "resume-schedule"
--[[
  Resumes a suspended schedule: forgets its last outcome, which says that it is suspended. Any other schedule stays as it is.

  KEYS[1] the tenant's schedules (hash)

  ARGV[1] name

  Returns 1 resumed, 0 not.
]]
local text = redis.call('HGET', KEYS[1], ARGV[1])
local entry = text and cjson.decode(text)
if not entry or type(entry.last) ~= 'table' or entry.last.suspended ~= true then
  return 0
end
-- `last` is the last member of the text (see `note-time`).
local last = string.find(text, ',"last":', 1, true)
redis.call('HSET', KEYS[1], ARGV[1], string.sub(text, 1, last - 1) .. '}')
return 1

--- @script "remove-orphan"
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
