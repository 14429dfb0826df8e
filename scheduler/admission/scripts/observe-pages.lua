--[[
  Learns from a run how many KV pages its function version holds. The script keeps the last 64 peaks of each model. Their 95th percentile
  (nearest rank: the largest of up to 20) is the expectation for the next run, so that one unusual run among many changes nothing.

  Memory is learned in the same way, under the name `#memory`, in MiB.

  KEYS[1] learned values of the version (hash): `peaks:<model>`, numbers separated by spaces; `pages:<model>`, the percentile; `runs`
  ARGV[1] retention of that hash, ms
  ARGV[2...] pairs: model, the most pages that the run held

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
local KEPT = 64

local key = KEYS[1]
local known, peaks = {}, {}
local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  known[fields[i]] = fields[i + 1]
  local model = string.match(fields[i], '^peaks:(.*)$')
  if model then
    peaks[model] = '0'
  end
end
for i = 2, #ARGV, 2 do
  peaks[ARGV[i]] = ARGV[i + 1]
end

-- Returns the sample of a rank counted from the largest; the rank is small.
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

local learned = { 'runs', tonumber(known.runs or 0) + 1 }
for model, peak in pairs(peaks) do
  local before, samples = known['peaks:' .. model], {}
  local text = before and before .. ' ' .. peak or peak
  for sample in string.gmatch(text, '%d+') do
    samples[#samples + 1] = tonumber(sample)
  end
  if #samples > KEPT then
    table.remove(samples, 1)
    text = string.match(text, '^%d+ (.*)$')
  end
  learned[#learned + 1] = 'peaks:' .. model
  learned[#learned + 1] = text
  learned[#learned + 1] = 'pages:' .. model
  learned[#learned + 1] = largest(samples, #samples - math.ceil(0.95 * #samples) + 1)
end
redis.call('HSET', key, unpack(learned))
redis.call('PEXPIRE', key, ARGV[1])
return 1
