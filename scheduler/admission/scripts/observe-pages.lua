--[[
  Learns from a run how many KV pages its function version holds. Of each model the last 64 peaks are kept, and their 95th percentile (nearest
  rank: the largest of up to 20) is what the next run is expected to hold, so that one unusual run among many changes nothing.

  KEYS[1] what is learned of the version (hash): `peaks:<model>`, numbers with spaces between; `pages:<model>`, the percentile; `runs`
  ARGV[1] how long it is kept, ms
  ARGV[2...] pairs: model, the most pages that the run held

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
local KEPT = 64

local key = KEYS[1]
local peaks = {}
for _, field in ipairs(redis.call('HKEYS', key)) do
  local model = string.match(field, '^peaks:(.*)$')
  if model then
    peaks[model] = 0
  end
end
for i = 2, #ARGV, 2 do
  peaks[ARGV[i]] = tonumber(ARGV[i + 1])
end
for model, peak in pairs(peaks) do
  local samples = {}
  for sample in string.gmatch(redis.call('HGET', key, 'peaks:' .. model) or '', '%d+') do
    samples[#samples + 1] = tonumber(sample)
  end
  samples[#samples + 1] = peak
  if #samples > KEPT then
    table.remove(samples, 1)
  end
  local text = table.concat(samples, ' ')
  table.sort(samples)
  redis.call('HSET', key, 'peaks:' .. model, text, 'pages:' .. model, samples[math.ceil(0.95 * #samples)])
end
redis.call('HINCRBY', key, 'runs', 1)
redis.call('PEXPIRE', key, ARGV[1])
return 1
