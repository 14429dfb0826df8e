--[[
  The entries of an event log that hold the events after a number, oldest first: as many as have so many events, or so many bytes together, but one at
  least. Events differ in size a thousandfold, and a reader holds what it has read. The first entry may begin with events up to that number.

  KEYS[1] events (stream)
  KEYS[2] record (hash)

  ARGV[1] number after which the events begin
  ARGV[2] events at most
  ARGV[3] bytes of their fields, unless the first alone has more

  Returns {1 if the log holds no more, else 0, status or '', runtime that shows events before it has written them or '', entry, ...}, an entry as XRANGE has it.
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
