--[[
  Returns one page of invocations, newest first, merged from several lists.

  KEYS[1...] lists (sorted sets of ids by submission time)

  ARGV[1] prefix of a record's key, before the id
  ARGV[2] submission time of the last invocation seen, or '+inf'
  ARGV[3] its id, or ''
  ARGV[4] maximum invocations to return
  ARGV[5] maximum invocations to look at
  ARGV[6] statuses to return, with commas around each (',queued,running,'), or '' for all

  Returns {cursor time, cursor id, id...}: the cursor is the last invocation that was looked at; its id is '' when no page follows.
]]
-- Members of one list that one command reads.
local CHUNK = 128
local from, fromId = ARGV[2], ARGV[3]

-- Returns an iterator over the members of a list after the cursor; each is a table of time and id.
local function reader(list)
  local offset, chunk, at = 0, {}, 1
  return function()
    while true do
      if at > #chunk then
        chunk = redis.call('ZREVRANGEBYSCORE', list, from, '-inf', 'WITHSCORES', 'LIMIT', offset, CHUNK)
        offset, at = offset + CHUNK, 1
        if #chunk == 0 then
          return nil
        end
      end
      local id, time = chunk[at], tonumber(chunk[at + 1])
      at = at + 2
      -- At equal times the greater id comes first.
      if fromId == '' or time < tonumber(from) or id < fromId then
        return {time = time, id = id}
      end
    end
  end
end

local readers, heads = {}, {}
for i, list in ipairs(KEYS) do
  readers[i] = reader(list)
  heads[i] = readers[i]()
end

local found, looked, last = {}, 0, nil
-- Each round takes the newest of the lists' next members.
while #found < tonumber(ARGV[4]) and looked < tonumber(ARGV[5]) do
  local first
  for i = 1, #KEYS do
    local head, best = heads[i], first and heads[first]
    if head and (not best or head.time > best.time or (head.time == best.time and head.id > best.id)) then
      first = i
    end
  end
  if not first then
    break
  end
  last = heads[first]
  heads[first] = readers[first]()
  looked = looked + 1
  local wanted = ARGV[6] == ''
  if not wanted then
    local status = redis.call('HGET', ARGV[1] .. last.id, 'status')
    wanted = status and string.find(ARGV[6], ',' .. status .. ',', 1, true)
  end
  if wanted then
    found[#found + 1] = last.id
  end
end

local more = false
for i = 1, #KEYS do
  more = more or heads[i]
end
if more and last then
  return {string.format('%.0f', last.time), last.id, unpack(found)}
end
return {'', '', unpack(found)}
