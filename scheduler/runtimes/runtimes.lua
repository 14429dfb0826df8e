-- The leases of runtimes, and what the death of one leaves.

--- @script "register"
--[[
  Registers a runtime, or updates the description of one that has not been declared dead. The runtime's lease begins anew. Adjusts the platform's
  capacity to what the runtime offers now, and admits the invocations that fit.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  ARGV[1] runtime id
  ARGV[2] how long the lease holds, ms
  ARGV[3] load as JSON text
  ARGV[4] its description, as JSON text
  ARGV[5] prefix of every key
  ARGV[6] now, ms
  ARGV[7] 'new' or 'update'

  Returns 1; 0 for an update of a runtime that is not registered (any more).
]]
--- @include "../store/even-when-full.lua"
--- @include "../admission/rules.lua"
if ARGV[7] == 'update' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
local a = openAdmission(ARGV[5], ARGV[6])
countRuntime(a, ARGV[1], ARGV[4])
admit(a)
closeAdmission(a)
return 1

--- @script "renew"
--[[
  Renews the lease of a runtime after the lease ran out or a full Redis refused the renewal, unless the runtime has been declared dead.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  ARGV[1] runtime id
  ARGV[2] how long the lease holds, ms
  ARGV[3] load as JSON text

  Returns 1 renewed, 0 the runtime is not registered (any more).
]]
--- @include "../store/even-when-full.lua"
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 1

--- @script "unregister"
--[[
  Removes a runtime from the registered runtimes, and what it offers from the platform's capacity.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  KEYS[3] its cancels (hash)
  KEYS[4] the reply to this call, see ../store/store.lua
  KEYS[5] invocations whose jobs it holds (set)
  ARGV[1] runtime id
  ARGV[2] prefix of every key
  ARGV[3] now, ms
  ARGV[4] '1' to do nothing when the runtime's lease holds
  ARGV[5] prefix of the keys of jobs

  Returns {1 when the runtime was registered, else 0, job, token of its BullMQ lock or '', ...} with the jobs that the runtime holds; 0 when the lease
  holds and nothing was done.
]]
--- @include "../store/even-when-full.lua"
--- @include "../store/store.lua"
--- @include "../admission/rules.lua"
local answered = answeredBefore(KEYS[4])
if answered then
  return answered
end
if ARGV[4] == '1' and redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
local wasRegistered = redis.call('HDEL', KEYS[1], ARGV[1])
local a = openAdmission(ARGV[2], ARGV[3])
countRuntime(a, ARGV[1], nil)
closeAdmission(a)
local jobs = { wasRegistered }
for _, id in ipairs(redis.call('SMEMBERS', KEYS[5])) do
  -- `pb`: BullMQ's `processedBy`, the runtime that holds the job.
  if redis.call('HGET', ARGV[5] .. id, 'pb') == ARGV[1] then
    jobs[#jobs + 1] = id
    jobs[#jobs + 1] = redis.call('GET', ARGV[5] .. id .. ':lock') or ''
  end
end
return answerOnce(KEYS[4], jobs)

--- @script "due"
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
--- @include "../store/even-when-full.lua"
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
