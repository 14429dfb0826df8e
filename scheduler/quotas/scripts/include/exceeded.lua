-- After limits.lua and counters.lua.

-- A number as a text that loses nothing, or ''.
local function exactText(number)
  return number ~= '' and string.format('%.17g', number) or ''
end

-- How full the counted quotas of an invocation are: the one that has been passed and ends last, or nil; and how many tokens are left in the
-- fullest window of tokens, or '', and which window that is, of several the longest. Requests were counted when the invocation was made.
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

-- KV pages that the tenant may hold, '' for no limit; and when that was read, ms by the clock of Redis, which is one for all: of two limits
-- that a GPU host is told the one that was read later counts.
local function pageLimit(account, now)
  local pages = quotaLimit(account, 'kv-pages', '', now)
  local time = redis.call('TIME')
  return exactText(pages or ''), string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end

-- What a metered call answers of the quotas: quota that has been passed or '', its function or '', its limit, tokens left or '', the
-- window that has them or '', and pageLimit.
local function quotaReply(account, fn, now)
  local exceeded, tokensLeft, tokensWindow = exceededQuota(account, fn, now)
  if exceeded then
    return {exceeded.kind .. '-per-' .. exceeded.window, exceeded.fn, exactText(exceeded.limit), exactText(tokensLeft), tokensWindow,
      pageLimit(account, now)}
  end
  return {'', '', '', exactText(tokensLeft), tokensWindow, pageLimit(account, now)}
end

-- What an attempt is told at its beginning: tokens left, KV pages that the tenant may hold, the window that has the tokens, and when the
-- limit of pages was read; '' for no limit.
local function attemptLimits(account, fn, now)
  if not account then
    return '', '', '', ''
  end
  local _, tokensLeft, tokensWindow = exceededQuota(account, fn, now)
  local pages, readAt = pageLimit(account, now)
  return exactText(tokensLeft), pages, tokensWindow, readAt
end
