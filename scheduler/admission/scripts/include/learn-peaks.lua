-- Learns from runs how many KV pages a function version holds. A hash keeps the last 64 peaks of each model (`peaks:<model>`, numbers
-- separated by spaces). Their 95th percentile by nearest rank (`pages:<model>`; with up to 19 peaks, the largest) is the expectation for the
-- next run, so that one unusual run among many changes nothing. `runs` counts the runs. Memory is learned in the same way, under the name `#memory`,
-- in MiB.
local learnPeaks

do
-- Peaks kept for each model.
local KEPT = 64

-- Returns the sample of a rank; the largest sample has rank 1. Keeps only the largest ones in order, since the rank is 4 at most.
local function largest(samples, rank)
  local top = {}
  for _, sample in ipairs(samples) do
    local at = #top
    while at > 0 and top[at] < sample do
      at = at - 1
    end
    if at < rank then
      table.insert(top, at + 1, sample)
      top[rank + 1] = nil
    end
  end
  return top[rank]
end

-- Adds the peaks of `runs` of one version, in order: each run is a table from model to the most that it held. A run that does
-- not name a model of earlier runs counts as 0 for that model. Redis forgets the hash `retentionMs` after the last run.
function learnPeaks(key, runs, retentionMs)
  local known, models = {}, {}
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    known[fields[i]] = fields[i + 1]
    models[string.match(fields[i], '^peaks:(.*)$') or ''] = true
  end
  models[''] = nil
  local samples = {}
  for i, run in ipairs(runs) do
    for model in pairs(run) do
      models[model] = true
    end
    for model in pairs(models) do
      if not samples[model] then
        samples[model] = {}
        for sample in string.gmatch(known['peaks:' .. model] or '', '%d+') do
          table.insert(samples[model], tonumber(sample))
        end
      end
      table.insert(samples[model], tonumber(run[model] or 0))
      if #samples[model] > KEPT then
        table.remove(samples[model], 1)
      end
    end
  end
  local learned = { 'runs', tonumber(known.runs or 0) + #runs }
  for model, some in pairs(samples) do
    for _, value in ipairs({ 'peaks:' .. model, table.concat(some, ' '), 'pages:' .. model, largest(some, #some - math.ceil(0.95 * #some) + 1) }) do
      learned[#learned + 1] = value
    end
  end
  redis.call('HSET', key, unpack(learned))
  redis.call('PEXPIRE', key, retentionMs)
end
end
