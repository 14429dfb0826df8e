--[[
  Returns the entries of an event log after a reader's position, oldest first, up to bounds on events and bytes, but at least one entry. The
  bytes are bounded since a reader holds the entries in memory, and event sizes vary a thousandfold. The first entry may begin with events that
  the reader has.

  After Redis lost writes, events of a later epoch may have numbers of events that the reader has. The entries then begin with the first event of
  a later epoch.

  KEYS[1] events (stream)
  KEYS[2] record (hash)

  ARGV[1] number of the last event that the reader has
  ARGV[2] epoch of that event, or '' when the reader does not know it
  ARGV[3] maximum events
  ARGV[4] maximum bytes of their fields, unless the first entry alone has more

  Returns {1 if the log holds no more, else 0; status or ''; runtime that shows events before writing them, or ''; number after
          which the store lost events that the reader has, or ''; epoch of the record; XRANGE entries...}.
]]
local after, most, mostBytes = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local status, runtime, shown, newestEpoch, lastSeq = unpack(redis.call('HMGET', KEYS[2], 'status', 'runtimeId', 'shown', 'epoch', 'seq'))

-- The first entry that ends with this number or a later one.
local function entryFrom(number)
  return redis.call('XRANGE', KEYS[1], string.format('%.0f-0', number), '+', 'COUNT', 1)[1]
end

-- True when the entry's epoch is later than the reader's.
local function isLater(entry)
  return tonumber(string.match(entry[1], '%-(%d+)$')) > tonumber(ARGV[2])
end

-- True when the reader's number belongs to a later epoch, or when the log ends before it although a later epoch exists. An entry has four texts
-- for each of its n events, and its id names the last number: the entry holds the numbers greater than `last - n`.
local function isReused()
  local entry = entryFrom(after)
  if entry then
    return isLater(entry) and tonumber(string.match(entry[1], '^%d+')) - #entry[2] / 4 < after
  end
  return lastSeq and tonumber(newestEpoch) > tonumber(ARGV[2]) and tonumber(lastSeq) < after
end

-- Number of the last event before those of later epochs. Searches by halves, since epochs only grow along a log.
local function lastBeforeLater()
  local low, high = 0, after
  while low < high do
    local middle = math.floor((low + high) / 2) + 1
    local entry = entryFrom(middle)
    if entry and not isLater(entry) then
      low = middle
    else
      high = middle - 1
    end
  end
  return low
end

local lost = ''
if ARGV[2] ~= '' and after > 0 and isReused() then
  after = lastBeforeLater()
  lost = string.format('%.0f', after)
end
local reply = { 0, status or '', status == 'running' and shown and runtime or '', lost, newestEpoch or '' }
local head, count, bytes, from = #reply, 0, 0, string.format('%.0f-0', after + 1)
while count < most do
  local entry = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)[1]
  if not entry then
    reply[1] = 1
    break
  end
  for _, field in ipairs(entry[2]) do
    bytes = bytes + #field
  end
  if bytes > mostBytes and #reply > head then
    break
  end
  reply[#reply + 1] = entry
  count = count + #entry[2] / 4
  from = '(' .. entry[1]
end
return reply
