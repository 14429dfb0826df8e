-- Limits of tenants and functions, and the tokens that attempts may use by them.
--- @include "../usage/usage.lua"

-- Limits of a tenant, in the hash `<account>:quotas`. The field `<quota>` (of the tenant) or `<quota>:<function>` holds `<limit>`; with an override
-- it holds `<limit, or - for none> <override> <until, ms>`. The field `#counted` exists when at least one counted limit (see COUNTED) is set. The
-- account `*` holds the defaults of every tenant. `resolve` of limits.ts finds the same limit.
local COUNTED = {'requests', 'tokens', 'gpu-ms', 'cpu-ms'}
local QUOTA_WINDOWS = {'minute', 'day', 'month'}

local function defaultQuotas(account)
  return string.match(account, '^(.*:)[^:]*$') .. '*:quotas'
end

-- The limit in a field's value at the time `now`; nil for no limit.
local function inForce(value, now)
  if not value then
    return nil
  end
  local set, override, expiry = string.match(value, '^(%S+) (%S+) (%S+)$')
  if override and tonumber(expiry) > now then
    return tonumber(override)
  end
  return tonumber(set or value)
end

-- Settings that nearly every script reads, by name. Cached per script run: a script that reads them must not change them.
local OFTEN_READ = {'#counted', 'concurrent-invocations', 'waiting-invocations', 'kv-pages', 'storage-bytes', 'redis-bytes',
  'disk-bytes', 'latency-invocations', 'schedules'}
local quotasRead = {}

local function oftenRead(settings)
  if not quotasRead[settings] then
    local values, known = redis.call('HMGET', settings, unpack(OFTEN_READ)), {}
    for i, name in ipairs(OFTEN_READ) do
      known[name] = values[i]
    end
    quotasRead[settings] = known
  end
  return quotasRead[settings]
end

-- A limit of the tenant (fn is '', and the quota is in OFTEN_READ) or of one of its functions; nil for none.
local function quotaLimit(account, quota, fn, now)
  if fn ~= '' then
    return inForce(redis.call('HGET', account .. ':quotas', quota .. ':' .. fn), now)
  end
  return inForce(oftenRead(account .. ':quotas')[quota], now) or inForce(oftenRead(defaultQuotas(account))[quota], now)
end

-- Every counted limit of the tenant and this function, the shortest window first: tables with kind, window, fn ('' for the tenant) and limit.
local function countedLimits(account, fn, now)
  local settings, defaults = account .. ':quotas', defaultQuotas(account)
  local own, usual = oftenRead(settings)['#counted'], oftenRead(defaults)['#counted']
  local limits = {}
  if not own and not usual then
    return limits
  end
  local names, fields = {}, {}
  for _, window in ipairs(QUOTA_WINDOWS) do
    for _, kind in ipairs(COUNTED) do
      local name = kind .. '-per-' .. window
      names[#names + 1] = name
      fields[#fields + 1] = name
      fields[#fields + 1] = name .. ':' .. fn
    end
  end
  -- `set` has the values of this tenant, two for each name: the tenant's and the function's. `given` has the defaults.
  local set = own and redis.call('HMGET', settings, unpack(fields)) or {}
  local given = usual and redis.call('HMGET', defaults, unpack(names)) or {}
  for i in ipairs(names) do
    local window, kind = QUOTA_WINDOWS[math.floor((i - 1) / #COUNTED) + 1], COUNTED[(i - 1) % #COUNTED + 1]
    local whole, one = inForce(set[2 * i - 1], now) or inForce(given[i], now), inForce(set[2 * i], now)
    if whole then
      limits[#limits + 1] = {kind = kind, window = window, fn = '', limit = whole}
    end
    if one then
      limits[#limits + 1] = {kind = kind, window = window, fn = fn, limit = one}
    end
  end
  return limits
end

-- Grants of tokens. An attempt whose tenant or function has a token quota may charge tokens only up to its ceiling, which counts from the beginning
-- of the attempt. The part of the ceiling that the attempt has not reported as used is its grant. For each token limit, the use in the
-- present window and all grants together are at most the limit. A grant holds in every later window, too: it counts against each window's limit.
--
-- The hash `<account>:grants` has a field `i:<invocation>` for each attempt: `<epoch> <tokens> <end, ms since the epoch, or 0> <function>`. The end
-- is that of a grant for usage that may be known only after the invocation's end. The fields `*` and `f:<function>` are the sums, `#` is the number
-- of grants, and `checkedAt` the last time, ms, when a script searched for grants of attempts that are over. `quotas/testing/renewed-grant.ts` decides in the same
-- way.

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

-- The tokens that a quota counts of an attempt's usage (the list of numbers of ../usage/usage.lua).
local function chargedTokens(metered)
  return math.max(0, metered[1] - metered[3]) + metered[2]
end

-- The tokens that a quota counts of an increase in usage (by index in the counts of ../usage/usage.lua).
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

-- The numbers of an ask, `<keep> <need> <want>`: ceilings, see `TokenAsk` of grants.ts. Nothing for '', which asks for no change of the ceiling.
local function parseAsk(ask)
  local keep, need, want = string.match(ask, '^(%d+) (%d+) (%d+)$')
  return tonumber(keep), tonumber(need), tonumber(want)
end

-- Takes from an attempt's grant what the attempt has used and what it returns. `a` names the attempt (id, epoch) and has its ask, the tokens that it
-- has reported as used (reported), and those of this call (charged). The use of the limits of `g` must contain them.
local function keepGrant(g, a)
  local known, keep = g.grants[a.id], parseAsk(a.ask)
  local left = known and known.epoch == a.epoch and math.max(0, known.tokens - a.charged) or 0
  changeGrant(g, a.id, a.epoch, keep and math.max(0, keep - a.reported) or left)
end

-- Grants an attempt what it asks for. Call `keepGrant` first for all attempts of the call: until then, tokens that an attempt has just used count both
-- as used and as granted. Returns the attempt's ceiling; and for a need without room the limit, followed by true when the room would not suffice
-- even if every other attempt returned its grant.
local function renewGrant(g, a)
  local id, epoch, reported = a.id, a.epoch, a.reported
  local keep = g.grants[id].tokens
  local _, need, want = parseAsk(a.ask)
  if not need then
    return reported + keep
  end
  need = math.max(keep, need - reported)
  want = math.max(need, want - reported)
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


-- A number as text without loss of precision; '' stays ''.
local function exactText(number)
  return number ~= '' and string.format('%.17g', number) or ''
end

-- Compares an invocation's counted quotas with their use. Returns the exceeded quota with the longest window, or nil; and the token limits, each
-- with its use. Skips requests: they were counted when the invocation was made.
local function exceededQuota(account, fn, now)
  local exceeded, tokenLimits, read = nil, {}, {}
  for _, limit in ipairs(countedLimits(account, fn, now)) do
    if limit.kind ~= 'requests' then
      if not read[limit.window] then
        read[limit.window] = {readCounts(account, fn, limit.window, now)}
      end
      limit.used = usedOf(limit.kind, read[limit.window][limit.fn == '' and 1 or 2])
      if limit.used > limit.limit then
        exceeded = limit
      end
      if limit.kind == 'tokens' then
        tokenLimits[#tokenLimits + 1] = limit
      end
    end
  end
  return exceeded, tokenLimits
end

-- KV pages that the tenant may hold ('' for no limit), and when that was read: ms by the clock of Redis, which all runtimes share. Of two
-- limits, a GPU host applies the one read later.
local function pageLimit(account, now)
  local pages = quotaLimit(account, 'kv-pages', '', now)
  local time = redis.call('TIME')
  return exactText(pages or ''), string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end

-- The name, function and limit of a quota, three empty texts for none.
local function quotaNamed(limit)
  if not limit then
    return '', '', ''
  end
  return limit.kind .. '-per-' .. limit.window, limit.fn, exactText(limit.limit)
end

-- Opens what `quotaReply` answers for attempts of one function: their grants, unless no token limit applies. `ids` are their invocations.
local function openQuotas(account, fn, now, ids)
  local exceeded, tokenLimits = exceededQuota(account, fn, now)
  local quotas = {exceeded = {quotaNamed(exceeded)}, pages = {pageLimit(account, now)}}
  if #tokenLimits > 0 then
    quotas.grants = openGrants(account, fn, now, tokenLimits, ids)
  end
  return quotas
end

-- The quota part of a metered reply: the exceeded quota, its function and its limit, each '' for none; the two values of pageLimit; the attempt's
-- ceiling in tokens, or '' without a token limit; and, when there is no room for the tokens that the attempt needs, the quota without room, its
-- function, its limit, and 1 when it would have no room even if every other attempt returned its grant, else 0.
local function quotaReply(quotas, ceiling, short, isHopeless)
  local reply = {quotas.exceeded[1], quotas.exceeded[2], quotas.exceeded[3], quotas.pages[1], quotas.pages[2], exactText(ceiling or '')}
  if short then
    reply[7], reply[8], reply[9] = quotaNamed(short)
    reply[10] = isHopeless and 1 or 0
  end
  return reply
end

-- The limits that an attempt gets at its beginning: its ceiling in tokens, KV pages that the tenant may hold, and when the page limit was read; ''
-- for no limit. `a` names the attempt: record, id, epoch (text) and isRepeated, true when an earlier call began it.
local function attemptLimits(account, fn, now, a)
  if not account then
    return '', '', ''
  end
  local _, tokenLimits = exceededQuota(account, fn, now)
  local ceiling = ''
  if #tokenLimits > 0 then
    ceiling = beginGrant(openGrants(account, fn, now, tokenLimits, {a.id}), a.id, a.epoch, a.isRepeated)
    redis.call('HSET', a.record, 'granted', 1)
  end
  return exactText(ceiling), pageLimit(account, now)
end

--- @script "set-quota"
--[[
  Changes one setting of a tenant: sets the permanent limit and removes the override, or sets the override and keeps the permanent limit, or removes
  both. A repeated call has no further effect.

  KEYS[1] settings (hash): field to limits, see above
  KEYS[2] notes on the settings (hash): field to the JSON text of ARGV[5]

  ARGV[1] field of the setting, in both hashes
  ARGV[2] new permanent limit, or '' for no new one
  ARGV[3] new override (temporary limit), or '' for no new one. If ARGV[2] is '' too, the script removes the setting.
  ARGV[4] end of the override, ms since the epoch
  ARGV[5] author and reason of the change, as JSON text
  ARGV[6] maximum number of settings of a tenant

  Returns 1 after the change. Returns 0 and changes nothing when a new setting would exceed ARGV[6].
]]
local settings, notes, field = KEYS[1], KEYS[2], ARGV[1]

if ARGV[2] == '' and ARGV[3] == '' then
  redis.call('HDEL', settings, field)
  redis.call('HDEL', notes, field)
else
  local before = redis.call('HGET', settings, field)
  -- The hash may also hold the mark `#counted`, which is not a setting.
  local count = redis.call('HLEN', settings) - redis.call('HEXISTS', settings, '#counted')
  if not before and count >= tonumber(ARGV[6]) then
    return 0
  end
  local value = ARGV[2]
  if ARGV[3] ~= '' then
    -- Keeps the permanent limit, the first word of the old value; `-` stands for none.
    value = string.match(before or '-', '^%S+') .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
  end
  redis.call('HSET', settings, field, value)
  redis.call('HSET', notes, field, ARGV[5])
end

-- Sets the mark when a counted limit (per minute, day or month) exists, else removes the mark. Without it, scripts do not read counted limits.
local counted = false
for _, name in ipairs(redis.call('HKEYS', settings)) do
  counted = counted or string.find(name, '-per-', 1, true) ~= nil
end
if counted then
  redis.call('HSET', settings, '#counted', 1)
else
  redis.call('HDEL', settings, '#counted')
end
return 1

--- @script "set-defaults"
--[[
  Replaces the default limits of all tenants.

  KEYS[1] settings of the tenant `*` (hash), see above

  ARGV[1...] pairs: field, limit
]]
redis.call('DEL', KEYS[1])
if #ARGV > 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
