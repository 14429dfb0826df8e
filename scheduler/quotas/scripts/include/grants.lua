-- Grants of tokens. An attempt whose tenant or function has a token quota may charge tokens only up to its ceiling, which counts from the beginning
-- of the attempt. The part of the ceiling that the attempt has not reported as used is its grant. For each token limit, the use in the
-- present window and all grants together are at most the limit. A grant holds in every later window, too: it counts against each window's limit.
--
-- The hash `<account>:grants` has a field `i:<invocation>` for each attempt: `<epoch> <tokens> <end, ms since the epoch, or 0> <function>`. The end
-- is that of a grant for usage that may be known only after the invocation's end. The fields `*` and `f:<function>` are the sums, `#` is the number
-- of grants, and `checkedAt` the last time, ms, when a script searched for grants of attempts that are over. `quotas/grants.ts` decides in the same
-- way.
-- Needs limits.lua and counters.lua, included before it.

-- Maximum tokens of the grant with which an attempt begins, and that a grant has above what the attempt's calls need.
local SPARE_TOKENS = 4096
-- Time for which a grant stays after its invocation's end when more usage may become known, ms: longer than a GPU host takes to release an inferlet.
local LATE_MS = 60000
-- Least time between two searches for grants of attempts that are over, ms, and maximum fields that one looks at.
local SEARCH_MS, SEARCHED = 1000, 64

local function grantsKey(account)
  return account .. ':grants'
end

local function wholeText(number)
  return string.format('%.0f', number)
end

local function grantText(epoch, tokens, endsAt, fn)
  return epoch .. ' ' .. wholeText(tokens) .. ' ' .. wholeText(endsAt) .. ' ' .. fn
end

-- Epoch, tokens, end and function of a stored grant; nothing for no grant.
local function parseGrant(text)
  local epoch, tokens, endsAt, fn = string.match(text or '', '^(%d+) (%d+) (%d+) (.*)$')
  return epoch, tonumber(tokens), tonumber(endsAt), fn
end

-- The tokens that a quota counts of an attempt's usage (the list of numbers of metering.lua).
local function chargedTokens(metered)
  return math.max(0, metered[1] - metered[3]) + metered[2]
end

-- The tokens that a quota counts of an increase in usage (by index in the counts of counters.lua).
local function addedTokens(added)
  return math.max(0, (added[INPUT_TOKENS] or 0) - (added[CACHED_TOKENS] or 0) + (added[OUTPUT_TOKENS] or 0))
end

-- Opens the grants of some invocations of one function. `limits` has the token limits with their use.
local function openGrants(account, fn, now, limits, ids)
  local key, fields = grantsKey(account), {'*', 'f:' .. fn, '#'}
  for _, id in ipairs(ids) do
    fields[#fields + 1] = 'i:' .. id
  end
  local values = redis.call('HMGET', key, unpack(fields))
  local g = {key = key, account = account, fn = fn, now = now, limits = limits, all = tonumber(values[1] or 0), ofFunction = tonumber(values[2] or 0),
    count = tonumber(values[3] or 0), grants = {}, changed = {}}
  for place, id in ipairs(ids) do
    local epoch, tokens = parseGrant(values[place + 3])
    g.grants[id] = epoch and {epoch = epoch, tokens = tokens} or nil
  end
  return g
end

-- Changes a grant in `g`; `closeGrants` stores it.
local function changeGrant(g, id, epoch, tokens)
  local change = tokens - (g.grants[id] and g.grants[id].tokens or 0)
  g.all, g.ofFunction = g.all + change, g.ofFunction + change
  g.count = g.count + (g.grants[id] and 0 or 1)
  g.grants[id] = {epoch = epoch, tokens = tokens}
  g.changed[id] = true
end

-- Stores the changed grants.
local function closeGrants(g)
  local fields = {'*', wholeText(g.all), 'f:' .. g.fn, wholeText(g.ofFunction), '#', g.count}
  for id in pairs(g.changed) do
    fields[#fields + 1] = 'i:' .. id
    fields[#fields + 1] = grantText(g.grants[id].epoch, g.grants[id].tokens, 0, g.fn)
  end
  redis.call('HSET', g.key, unpack(fields))
end

-- The tokens that no use and no grant has taken, of the limit that has the fewest, and that limit. Negative after an operator lowered a limit.
local function freeTokens(g)
  local room, tightest
  for _, limit in ipairs(g.limits) do
    local left = limit.limit - limit.used - (limit.fn == '' and g.all or g.ofFunction)
    if not room or left <= room then
      room, tightest = left, limit
    end
  end
  return room, tightest
end

-- The tokens that no use has taken, of the limit that has the fewest, and that limit.
local function unusedTokens(g)
  local unused, tightest
  for _, limit in ipairs(g.limits) do
    if not unused or limit.limit - limit.used <= unused then
      unused, tightest = limit.limit - limit.used, limit
    end
  end
  return unused, tightest
end

-- Searches some of the tenant's grants for those whose attempt is over or unknown, and drops them. Every end of an attempt returns its grant
-- in the same step; only a grant whose record Redis lost, or whose late usage never came, is found here.
local function dropEndedGrants(g)
  local last = tonumber(redis.call('HGET', g.key, 'checkedAt') or 0)
  if last <= g.now and g.now - last < SEARCH_MS then
    return
  end
  redis.call('HSET', g.key, 'checkedAt', g.now)
  local prefix = string.match(g.account, '^(.*):account:[^:]*$')
  local some = redis.call('HRANDFIELD', g.key, SEARCHED, 'WITHVALUES')
  for i = 1, #some, 2 do
    local id = string.match(some[i], '^i:(.*)$')
    if id and not g.changed[id] then
      local epoch, tokens, endsAt, fn = parseGrant(some[i + 1])
      local status, current = unpack(redis.call('HMGET', prefix .. ':invocation:' .. id, 'status', 'epoch'))
      if not (status == 'running' and current == epoch) and endsAt <= g.now then
        redis.call('HDEL', g.key, some[i])
        g.grants[id] = nil
        g.all, g.count = g.all - tokens, g.count - 1
        if fn == g.fn then
          g.ofFunction = g.ofFunction - tokens
        else
          redis.call('HINCRBY', g.key, 'f:' .. fn, wholeText(-tokens))
        end
      end
    end
  end
end

-- The part of the room that an attempt may get above its needs: half of an equal part, so that later attempts find room, too.
local function spareTokens(g, room)
  return math.max(0, math.floor(room / (2 * math.max(1, g.count))))
end

-- The grant with which an attempt begins, in tokens: its ceiling. A repeated begin gets the same one.
local function beginGrant(g, id, epoch, isRepeated)
  if not (isRepeated and g.grants[id] and g.grants[id].epoch == epoch) then
    changeGrant(g, id, epoch, 0)
    changeGrant(g, id, epoch, math.min(SPARE_TOKENS, spareTokens(g, freeTokens(g))))
    closeGrants(g)
  end
  return g.grants[id].tokens
end

-- Renews an attempt's grant. `reported` are the tokens that the attempt has reported as used, `added` those of this report. `ask` is `<keep> <need>
-- <want>`: ceilings, see `TokenAsk` of grants.ts; or '' for no change of the ceiling. Returns the attempt's ceiling; and for a need without room the
-- limit, followed by true when the room would not suffice even if every other attempt returned its grant.
local function renewGrant(g, id, epoch, reported, added, ask)
  local known = g.grants[id]
  local left = known and known.epoch == epoch and math.max(0, known.tokens - added) or 0
  local keep, need, want = string.match(ask, '^(%d+) (%d+) (%d+)$')
  if not keep then
    changeGrant(g, id, epoch, left)
    return reported + left
  end
  keep = math.max(0, tonumber(keep) - reported)
  need = math.max(keep, tonumber(need) - reported)
  want = math.max(need, tonumber(want) - reported)
  changeGrant(g, id, epoch, keep)
  local room, tightest = freeTokens(g)
  if need > keep and need - keep > room then
    local unused, limit = unusedTokens(g)
    if need > unused then
      return reported + keep, limit, true
    end
    dropEndedGrants(g)
    room, tightest = freeTokens(g)
    if need - keep > room then
      return reported + keep, tightest, false
    end
  end
  if want > need then
    need = need + math.min(want - need, spareTokens(g, room - (need - keep)))
  end
  changeGrant(g, id, epoch, need)
  return reported + need
end

-- Returns the grant of an attempt that is over. Keeps `late` tokens (0 for none) for usage that may still become known, until `returnGrant` is
-- called without them.
local function returnGrant(account, id, late, now)
  local key = grantsKey(account)
  local epoch, tokens, _, fn = parseGrant(redis.call('HGET', key, 'i:' .. id))
  if not epoch then
    return
  end
  if late > 0 then
    redis.call('HSET', key, 'i:' .. id, grantText(epoch, late, now + LATE_MS, fn))
  else
    redis.call('HDEL', key, 'i:' .. id)
  end
  if late == 0 and redis.call('HINCRBY', key, '#', -1) <= 0 then
    redis.call('DEL', key)
    return
  end
  redis.call('HINCRBY', key, '*', wholeText(late - tokens))
  if redis.call('HINCRBY', key, 'f:' .. fn, wholeText(late - tokens)) <= 0 then
    redis.call('HDEL', key, 'f:' .. fn)
  end
end
