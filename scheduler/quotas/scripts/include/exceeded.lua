-- Needs limits.lua and counters.lua, included before it.

-- A number as text without loss of precision; '' stays ''.
local function exactText(number)
  return number ~= '' and string.format('%.17g', number) or ''
end

-- Compares an invocation's counted quotas with their use. Returns three values: the exceeded quota with the longest window, or nil; the fewest
-- tokens left in any window with a token limit, or ''; and the longest window with that few tokens left, or ''. Skips requests: they were counted
-- when the invocation was made.
local function exceededQuota(account, fn, now)
  local exceeded, tokensLeft, tokensWindow = nil, '', ''
  local read = {}
  for _, limit in ipairs(countedLimits(account, fn, now)) do
    if limit.kind ~= 'requests' then
      if not read[limit.window] then
        read[limit.window] = {readCounts(account, fn, limit.window, now)}
      end
      local used = usedOf(limit.kind, read[limit.window][limit.fn == '' and 1 or 2])
      if used > limit.limit then
        exceeded = limit
      end
      if limit.kind == 'tokens' then
        local left = math.max(0, limit.limit - used)
        if tokensLeft == '' or left <= tokensLeft then
          tokensLeft, tokensWindow = left, limit.window
        end
      end
    end
  end
  return exceeded, tokensLeft, tokensWindow
end

-- KV pages that the tenant may hold ('' for no limit), and when that was read: ms by the clock of Redis, which all runtimes share. Of two
-- limits, a GPU host applies the one read later.
local function pageLimit(account, now)
  local pages = quotaLimit(account, 'kv-pages', '', now)
  local time = redis.call('TIME')
  return exactText(pages or ''), string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end

-- The quota part of a metered reply: exceeded quota or '', its function or '', its limit, tokens left or '', their window or '', and the
-- two values of pageLimit.
local function quotaReply(account, fn, now)
  local exceeded, tokensLeft, tokensWindow = exceededQuota(account, fn, now)
  if exceeded then
    return {exceeded.kind .. '-per-' .. exceeded.window, exceeded.fn, exactText(exceeded.limit), exactText(tokensLeft), tokensWindow,
      pageLimit(account, now)}
  end
  return {'', '', '', exactText(tokensLeft), tokensWindow, pageLimit(account, now)}
end

-- The limits that an attempt gets at its beginning: tokens left, KV pages that the tenant may hold, the window of the tokens, and when the
-- page limit was read; '' for no limit.
local function attemptLimits(account, fn, now)
  if not account then
    return '', '', '', ''
  end
  local _, tokensLeft, tokensWindow = exceededQuota(account, fn, now)
  local pages, readAt = pageLimit(account, now)
  return exactText(tokensLeft), pages, tokensWindow, readAt
end
