-- How full the fullest of the GPU hosts that serve a key would be with `pages` added: its admitted pages as a fraction of all its pages. A host
-- without invocations counts as 1 at most, since any need may start there.
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

-- The placement keys of two GPU hosts that an id draws (`drawTwo` in ../../../policies/placement.ts). They serve the model with the most
-- expected pages (of several, the first by name); nil when it has fewer than two hosts.
local function drawnKeys(a, id, pages)
  local chosen
  for model, count in pairs(pages) do
    local most = chosen and pages[chosen] or -1
    if model ~= MEMORY and (count > most or (count == most and model < chosen)) then
      chosen = model
    end
  end
  local list = a.base .. 'hosts:' .. (chosen or '')
  local hosts = a.leaving and chosen and redis.call('ZCARD', list) or 0
  if hosts < 2 then
    return nil
  end
  local function keyAt(index)
    return '@' .. redis.call('ZRANGE', list, index, index)[1] .. '/' .. id
  end
  local digits = redis.sha1hex(id)
  local one = tonumber(string.sub(digits, 1, 8), 16) % hosts
  local other = tonumber(string.sub(digits, 9, 16), 16) % (hosts - 1)
  return keyAt(one), keyAt(other < one and other or other + 1)
end

-- Implements `chosenKey` in ../../../policies/placement.ts.
local function chosenKey(a, id, affinity, pages)
  if affinity and crowdingOf(a, affinity, pages) <= 1 then
    return affinity
  end
  local one, other = drawnKeys(a, id, pages)
  local part = other and crowdingOf(a, other, pages) or math.huge
  return part <= 1 and part < crowdingOf(a, one, pages) and other or one or id
end
