--[[
  Learns from a run that its attempt did not end how many KV pages and how much memory its function version holds.

  KEYS[1] learned values of the version (hash), see include/learn-peaks.lua
  ARGV[1] retention of that hash, ms
  ARGV[2...] pairs: model, maximum pages that the run held

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
