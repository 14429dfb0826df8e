--[[
  Puts the invocations whose debounce delay has passed into their tenants' queues, as if they were submitted now.

  KEYS[1] debounced invocations (sorted set)
  KEYS[2] arrivals (counter)

  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] maximum invocations to release

  Returns {number of released invocations, 1 when more may wait, else 0}.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../admission/scripts/include/admission.lua"
--- @include "./include/leave-debounce.lua"
--- @include "./include/replaced.lua"

-- Bytes of jobs after which one call releases no more: large jobs take long to change.
local MAX_RELEASED_BYTES = 1048576

local prefix, now = ARGV[1], ARGV[2]
local released, seen, bytes = {}, 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])) do
  local key, job = prefix .. ':invocation:' .. id, prefix .. ':bull:invocations:' .. id
  local status, tenant, debounceKey, debounceField, before = unpack(redis.call('HMGET', key, 'status', 'tenant', 'debounceKey',
    'debounceField', 'arrival'))
  local data = redis.call('HGET', job, 'data')
  seen, bytes = seen + 1, bytes + #(data or '')
  redis.call('ZREM', KEYS[1], id)
  -- Redis may have lost the record or the job; `repair` ends an invocation without a job.
  if debounceKey then
    leaveDebounce({ id = id, prefix = prefix, debounceKey = debounceKey, debounceField = debounceField })
  end
  if status == 'queued' and data then
    -- An early submission earns no earlier place in the queue, nor in the memory of a GPU host. An invocation with latency targets keeps its
    -- arrival, which create.lua has moved ahead.
    local arrival = tonumber(before)
    if redis.call('HEXISTS', key, 'latency') == 0 then
      arrival = redis.call('INCR', KEYS[2])
      redis.call('HSET', job, 'data', replaced(data, '^{"arrival":%d+', '{"arrival":' .. arrival))
    end
    redis.call('HSET', key, 'arrival', arrival, 'requeuedAt', now)
    redis.call('HDEL', key, 'debounceKey', 'debounceField', 'notBefore')
    released[#released + 1] = { tenant = tenant, id = id, arrival = arrival }
  end
  if bytes > MAX_RELEASED_BYTES then
    break
  end
end
if #released > 0 then
  changeAdmission(prefix, now, function(a)
    for _, one in ipairs(released) do
      enterQueue(a, one.tenant, one.id, one.arrival)
    end
  end)
end
return {#released, (seen == tonumber(ARGV[3]) or bytes > MAX_RELEASED_BYTES) and 1 or 0}
