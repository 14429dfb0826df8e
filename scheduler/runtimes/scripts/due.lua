--[[
  Returns the work of a reaper's round, so that an idle platform costs one command a round. In a large platform, a call soon after another
  reaper's call returns only the number of living runtimes.

  No runtime counts as dead until reapers have looked for the length of a lease without a long pause: while Redis stood still, no runtime
  could renew its lease.

  KEYS[1] registered runtimes (hash)
  KEYS[2] deadlines of invocations that have not ended (sorted set)
  KEYS[3] tenants with invocations that wait or are admitted (set)
  KEYS[4] tenants by the time of their next expiring stored value (sorted set)
  KEYS[5] removed functions and versions that still drain (hash)
  KEYS[6] debounced invocations by the end of their delay (sorted set)
  KEYS[7] invocations that wait for a person, by the end of the wait (sorted set)
  KEYS[8] looks (calls of this script that list the work) of all reapers (hash): `at`, the time of the last look, `since`, the time of the first
          look after the last pause (both in ms by the clock of Redis), and `living`, the number of living runtimes at the last look.
          `<key>:checks` (sorted set) has the registered runtimes by a time until which their leases hold (ms by the clock of Redis); a look
          checks only the leases of runtimes whose time has come
  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] maximum overdue invocations returned, and maximum invocations with an unanswered question
  ARGV[4] how long a lease holds, ms
  ARGV[5] time between two looks that counts as a pause, ms
  ARGV[6] least time between two looks of a large platform, ms
  ARGV[7] maximum runtimes of a platform that is not large

  Returns {time of Redis in ms, number of living runtimes} when another reaper has just looked; else {time of Redis in ms, ids of runtimes whose
  lease has run out, ids of overdue invocations, 1 when tenants wait or hold slots, 1 when stored values have expired, 1 when removals are under
  way, 1 when debounced invocations are due, ids of invocations whose question was not answered in time, number of living runtimes}.
]]
--- @include "../../store/scripts/even-when-full.lua"
local checks, time = KEYS[8] .. ':checks', redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at, since, lived = unpack(redis.call('HMGET', KEYS[8], 'at', 'since', 'living'))
if at and tonumber(lived or 0) > tonumber(ARGV[7]) and now >= tonumber(at) and now - at < tonumber(ARGV[6]) then
  return { now, tonumber(lived) }
end
if not at or now - at > tonumber(ARGV[5]) or now < tonumber(at) then
  since = now
  -- If the clock has gone back, the times in `checks` are too late.
  redis.call('DEL', checks)
end
local runtimes = redis.call('HLEN', KEYS[1])
-- Runtimes have registered or have been removed: `checks` begins anew, with all of them due.
if redis.call('ZCARD', checks) ~= runtimes then
  redis.call('DEL', checks)
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    redis.call('ZADD', checks, 0, id)
  end
end
-- Maximum number of values that one call passes: Lua's stack holds about 8,000.
local MOST_AT_ONCE = 2000
-- `late`: ids of registered runtimes whose lease has run out. `alive`: pairs of time and id, the new entries of `checks`.
local late, alive = {}, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', checks, '-inf', now)) do
  local leftMs = redis.call('PTTL', ARGV[1] .. ':runtime:' .. id .. ':alive')
  -- PTTL returns -2 for no such key, and -1 for a key without expiry.
  if leftMs ~= -2 then
    alive[#alive + 1] = now + math.min(leftMs == -1 and math.huge or leftMs, tonumber(ARGV[4]))
    alive[#alive + 1] = id
  elseif redis.call('HEXISTS', KEYS[1], id) == 1 then
    late[#late + 1] = id
  else
    -- This runtime is not registered. The numbers are equal, so a runtime that is registered has no entry yet. Without this entry the numbers
    -- differ, and the next look begins `checks` anew.
    redis.call('ZREM', checks, id)
  end
end
for from = 1, #alive, MOST_AT_ONCE do
  redis.call('ZADD', checks, unpack(alive, from, math.min(#alive, from + MOST_AT_ONCE - 1)))
end
local living = runtimes - #late
redis.call('HSET', KEYS[8], 'at', now, 'since', since, 'living', living)
local dead = now - since >= tonumber(ARGV[4]) and late or {}
return {
  now,
  dead,
  redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3]),
  redis.call('EXISTS', KEYS[3]),
  redis.call('ZCOUNT', KEYS[4], '-inf', ARGV[2]) > 0 and 1 or 0,
  redis.call('EXISTS', KEYS[5]),
  redis.call('ZCOUNT', KEYS[6], '-inf', ARGV[2]) > 0 and 1 or 0,
  redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3]),
  living,
}
