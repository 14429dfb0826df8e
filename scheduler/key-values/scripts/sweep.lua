--[[
  Drops expired keys of a tenant.

  KEYS[1..5] see include/stored.lua

  ARGV[1..2] see include/stored.lua
  ARGV[3] maximum number of keys to drop
  ARGV[4] see include/stored.lua

  Returns the number of dropped keys.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/stored.lua"

local swept = sweep(tonumber(ARGV[3]))
schedule()
return swept
