--[[
  Reads an unexpired value.

  KEYS[1] values (hash)
  KEYS[2] expiries (sorted set)

  ARGV[1] now, ms
  ARGV[2] key
  ARGV[3] 1: return the value; 0: only test for it

  Returns {1, version (8 bytes) and value}, {1} for the test, or {0} without a value.
]]
local expiry = redis.call('ZSCORE', KEYS[2], ARGV[2])
if expiry and tonumber(expiry) <= tonumber(ARGV[1]) then
  return {0}
end
if ARGV[3] == '0' then
  return {redis.call('HEXISTS', KEYS[1], ARGV[2])}
end
local stored = redis.call('HGET', KEYS[1], ARGV[2])
if not stored then
  return {0}
end
return {1, stored}
