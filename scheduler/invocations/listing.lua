-- The lists of a tenant's invocations.
--- @include "../store/store.lua"

-- Invocations by submission time. Unended and ended invocations have separate lists, so that ended ones never push out running ones. Each
-- tenant, and each of its functions, has two sorted sets: <listing>:open and <listing>:ended, <listing>:of:<function>:open and …:ended.
-- <listing> is a prefix of keys; the invocation's record keeps it as the field `listing`, for the script that ends the invocation.
-- The changes are gathered: call `runGathered` after the last one.
local function listsOf(listing, fn)
  return {listing, listing .. ':of:' .. fn}
end

local listOpen

do
-- Lists that this script has cut already: one cut of each list is enough.
local cutLists = {}
-- Maximum number of a list's old invocations at which one cut looks.
local OLD_AT_ONCE = 16

-- Drops ended invocations that were submitted before `oldest` and whose records are gone. An old invocation may still have its record: the
-- record's retention begins when the invocation ends, and an invocation may wait for a person for a month. If the first invocations of the
-- list all have their records, a cut that always began there would drop nothing. So each cut begins at another place: the time `oldest`,
-- in milliseconds, serves as a random number.
local function dropOld(listing, ended, oldest)
  -- Keys begin with the platform's prefix: <prefix>:listing:<tenant>, <prefix>:invocation:<id>.
  local records = string.match(listing, '^(.*):listing:[^:]*$') .. ':invocation:'
  local others = redis.call('ZCOUNT', ended, '-inf', oldest) - OLD_AT_ONCE
  local from = others > 0 and oldest % (others + 1) or 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ended, '-inf', oldest, 'LIMIT', from, OLD_AT_ONCE)) do
    if redis.call('EXISTS', records .. id) == 0 then
      redis.call('ZREM', ended, id)
    end
  end
end

-- Lists an unended invocation, and drops ended ones past the bounds: number per tenant and per function, and the age `keepMs`.
function listOpen(listing, fn, id, submittedAt, keepOfTenant, keepOfFunction, keepMs)
  for i, list in ipairs(listsOf(listing, fn)) do
    gather('ZADD', list .. ':open', submittedAt, id)
    if not cutLists[list] then
      cutLists[list] = true
      dropOld(listing, list .. ':ended', submittedAt - keepMs)
      redis.call('ZREMRANGEBYRANK', list .. ':ended', 0, -1 - tonumber(i == 1 and keepOfTenant or keepOfFunction))
    end
  end
end
end

local function listEnded(listing, fn, id, submittedAt, keepMs)
  for _, list in ipairs(listsOf(listing, fn)) do
    gather('ZREM', list .. ':open', id)
    gather('ZADD', list .. ':ended', submittedAt, id)
    expireLater(list .. ':ended', keepMs)
  end
end

--- @script "list"
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
