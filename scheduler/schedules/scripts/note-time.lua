--[[
  Stores the outcome of a schedule's last firing. A schedule that was removed, replaced or suspended meanwhile stays as it is.

  KEYS[1] the tenant's schedules (hash)

  ARGV[1] name
  ARGV[2] id of the schedule that fired
  ARGV[3] `LastTime` of ../types.ts, JSON text

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
