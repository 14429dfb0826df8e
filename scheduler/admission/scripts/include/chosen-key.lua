-- Part of its pages up to which a GPU host takes every invocation whose id prefers it.
local UNCROWDED = 0.5

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

-- Implements `chosenKey` in ../../../policies/placement.ts.
local function chosenKey(a, id, affinity, pages)
  if affinity and crowdingOf(a, affinity, pages) <= 1 then
    return affinity
  end
  local own = crowdingOf(a, id, pages)
  local second = id .. '~2'
  return own > UNCROWDED and crowdingOf(a, second, pages) < own and second or id
end
