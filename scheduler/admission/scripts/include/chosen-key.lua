-- Part of its pages that the fullest GPU host of a key has admitted, with these ones. One without admitted invocations has room for any.
local function crowdingOf(a, key, pages)
  local most = 0
  for place, count in pairs(placed(a, nil, key, pages)) do
    if string.find(place, '@', 1, true) then
      local used = a.used[place] or 0
      local part = (used + count) / (a.pages[place] or 0)
      most = math.max(most, used == 0 and math.min(1, part) or part)
    end
  end
  return most
end

-- The keys of two GPU hosts that an id draws from those of the first model by name (`drawn` in ../../../policies/placement.ts); nil where no
-- host is known.
local function drawnKeys(a, id, pages)
  local first
  for model in pairs(pages) do
    first = model ~= MEMORY and (not first or model < first) and model or first
  end
  local list = a.base .. 'hosts:' .. (first or '')
  local count = a.leaving and first and redis.call('ZCARD', list) or 0
  if count == 0 then
    return nil
  end
  local function keyAt(place)
    return '@' .. redis.call('ZRANGE', list, place, place)[1]
  end
  local digits = redis.sha1hex(id)
  local one = tonumber(string.sub(digits, 1, 8), 16) % count
  if count == 1 then
    return keyAt(one), keyAt(one)
  end
  local other = tonumber(string.sub(digits, 9, 16), 16) % (count - 1)
  return keyAt(one), keyAt(other < one and other or other + 1)
end

-- Implements `chosenKey` in ../../../policies/placement.ts.
local function chosenKey(a, id, affinity, pages)
  if affinity and crowdingOf(a, affinity, pages) <= 1 then
    return affinity
  end
  local one, other = drawnKeys(a, id, pages)
  return one and crowdingOf(a, other, pages) < crowdingOf(a, one, pages) and other or one or id
end
