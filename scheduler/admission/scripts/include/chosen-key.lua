-- Returns how full the GPU hosts of a key would be with `pages` added: the largest fraction of a host's pages that admitted invocations would then
-- take. A host without invocations counts as 1 at most, since a head of any size may start there.
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

-- Returns placement keys for two GPU hosts, which the id draws (`drawTwo` in ../../../policies/placement.ts) among the hosts of the model with the
-- most expected pages (of several such models, the first by name). Returns nil when that model has fewer than two hosts.
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

-- Implements `chosenKey` in ../../../policies/placement.ts: the affinity while its hosts have room; else the less crowded of two drawn hosts, if it
-- has room, or the first one drawn; the id when there are no two hosts.
local function chosenKey(a, id, affinity, pages)
  if affinity and crowdingOf(a, affinity, pages) <= 1 then
    return affinity
  end
  local one, other = drawnKeys(a, id, pages)
  local part = other and crowdingOf(a, other, pages) or math.huge
  return part <= 1 and part < crowdingOf(a, one, pages) and other or one or id
end
