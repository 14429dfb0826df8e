--[[
  Lists the unexpired keys of a range in byte order.

  KEYS[1] names (sorted set)
  KEYS[2] expiries (sorted set)

  ARGV[1] now, ms
  ARGV[2] lower bound in the syntax of ZRANGEBYLEX
  ARGV[3] upper bound
  ARGV[4] how many keys are wanted
  ARGV[5] maximum keys to read

  Returns {1 when the range may have more keys, else 0; the last key read or ''; key...}.
]]
local looked = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[5])
local wanted, now = tonumber(ARGV[4]), tonumber(ARGV[1])
local someExpire = redis.call('EXISTS', KEYS[2]) == 1
local found = {#looked == tonumber(ARGV[5]) and 1 or 0, ''}
for _, key in ipairs(looked) do
  found[2] = key
  local expiry = someExpire and redis.call('ZSCORE', KEYS[2], key)
  if not expiry or tonumber(expiry) > now then
    found[#found + 1] = key
    if #found == wanted + 2 then
      break
    end
  end
end
return found
