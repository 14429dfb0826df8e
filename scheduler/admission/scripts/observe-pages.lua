--[[
  Adds the peak of a run to the learned peaks of its function version. `finish.lua` does so for a run that ends its invocation.

  KEYS[1] learned values of the version (hash), see include/learn-peaks.lua
  ARGV[1] retention of that hash, ms
  ARGV[2...] pairs: model, or `#memory`; maximum pages, or MiB, that the run held

  Returns 1.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/learn-peaks.lua"

local run = {}
for i = 2, #ARGV, 2 do
  run[ARGV[i]] = ARGV[i + 1]
end
learnPeaks(KEYS[1], { run }, ARGV[1])
return 1
