-- After limits.lua and counters.lua.

-- How full the counted quotas of an invocation are: the one that has been passed and ends last, or nil; and how many tokens are left in the
-- fullest window of tokens, or ''. Requests were counted when the invocation was made.
local function exceededQuota(account, fn, now)
  local exceeded, tokensLeft = nil, ''
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
        tokensLeft = math.min(tokensLeft == '' and math.huge or tokensLeft, math.max(0, limit.limit - used))
      end
    end
  end
  return exceeded, tokensLeft
end

-- What a metered call answers of the quotas: quota that has been passed or '', its function or '', its limit, tokens left or ''.
local function quotaReply(account, fn, now)
  local exceeded, tokensLeft = exceededQuota(account, fn, now)
  if exceeded then
    return {exceeded.kind .. '-per-' .. exceeded.window, exceeded.fn, tostring(exceeded.limit), tostring(tokensLeft)}
  end
  return {'', '', '', tostring(tokensLeft)}
end

-- What an attempt is told at its beginning: tokens left, and KV pages that the tenant may hold; '' for no limit.
local function attemptLimits(record, now)
  local account, fn = unpack(redis.call('HMGET', record, 'account', 'function'))
  if not account then
    return '', ''
  end
  local _, tokensLeft = exceededQuota(account, fn, now)
  local pages = quotaLimit(account, 'kv-pages', '', now)
  return tostring(tokensLeft), pages and tostring(pages) or ''
end
