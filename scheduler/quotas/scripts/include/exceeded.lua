--- @include "./grants.lua"
-- Needs limits.lua and counters.lua, included before it.

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
