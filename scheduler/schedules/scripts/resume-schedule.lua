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
-- `last` is the last member of the text (see note-time.lua).
local last = string.find(text, ',"last":', 1, true)
redis.call('HSET', KEYS[1], ARGV[1], string.sub(text, 1, last - 1) .. '}')
return 1
