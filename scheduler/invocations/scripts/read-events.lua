--[[
  Returns the entries of an event log with the events after a number, oldest first, up to bounds on events and bytes, but at least one.
  Event sizes vary a thousandfold, and a reader holds the entries in memory. The first entry may begin with events up to that number.

  KEYS[1] events (stream)
  KEYS[2] record (hash)

  ARGV[1] number after which the events begin
  ARGV[2] most events
  ARGV[3] most bytes of their fields, unless the first entry alone has more

  Returns {1 if the log holds no more, else 0; status or ''; runtime that shows events before writing them, or ''; XRANGE entries...}.
]]
local from, most, mostBytes = (tonumber(ARGV[1]) + 1) .. '-0', tonumber(ARGV[2]), tonumber(ARGV[3])
local status, runtime, shown = unpack(redis.call('HMGET', KEYS[2], 'status', 'runtimeId', 'shown'))
local reply, count, bytes = { 0, status or '', status == 'running' and shown and runtime or '' }, 0, 0
while count < most do
  local entry = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)[1]
  if not entry then
    reply[1] = 1
    break
  end
  for _, field in ipairs(entry[2]) do
    bytes = bytes + #field
  end
  if bytes > mostBytes and #reply > 3 then
    break
  end
  reply[#reply + 1] = entry
  count = count + #entry[2] / 4
  from = '(' .. entry[1]
end
return reply
