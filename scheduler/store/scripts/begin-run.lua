--[[
  Counts the begin of a run of a job, unless too many runs in a row began and did not end. The end of a run deletes the count.

  KEYS[1] runs of the job that did not end (string)

  ARGV[1] number of such runs at which no further one begins
  ARGV[2] time for which the count is kept, ms

  Returns the number before this call. The run has begun if it is below ARGV[1].
]]
--- @include "even-when-full.lua"
local unended = tonumber(redis.call('GET', KEYS[1]) or '0')
if unended < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], unended + 1, 'PX', ARGV[2])
end
return unended
