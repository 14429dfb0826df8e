--[[
  Hands admitted jobs to a runtime: from BullMQ's list `wait` to its list `active`, with lock and holder, as BullMQ's own moveToActive does
  for one job. A call hands over at most one runtime's equal part of the waiting jobs, and fewer when they are large. It hands none to a runtime
  that takes no jobs, is not registered, or is late to renew its lease: the fetch of a frozen runtime may still wait in Redis. The script also
  begins the attempts of the first jobs. A call that is repeated with the same token hands over the same jobs, since their attempts may have begun.
  Until the runtime has said that it received the jobs, none of the attempts that the script began can have run; leave-active.lua relies on this.

  The script reads the time itself: it may run seconds after it was sent, behind a command that waits for jobs.

  KEYS[1] BullMQ wait (list)
  KEYS[2] BullMQ active (list)
  KEYS[3] BullMQ marker (sorted set), which wakes a sleeping runtime
  KEYS[4] registered runtimes (hash)
  KEYS[5] the runtime's last fetch (hash): `token`; and `jobs:<token>`, the ids of its jobs, separated by spaces, until the runtime says that it
          received them. The field's name has the token because the runtime may say so again after a later fetch
  KEYS[6] the runtime's alive key

  ARGV[1] prefix of every key
  ARGV[2] prefix of the keys of jobs
  ARGV[3] runtime that takes them
  ARGV[4] token of this fetch, the value of the jobs' locks
  ARGV[5] duration of the locks, ms
  ARGV[6] maximum jobs to take
  ARGV[7] maximum attempts to begin
  ARGV[8] events past the log's last one that an attempt may show before it has written them; 0 when the runtime shows no events itself
  ARGV[9] the runtime's cancels (hash)
  ARGV[10] channel on which the runtime hears of cancels
  ARGV[11] least time that must be left of the runtime's lease, ms

  Returns {number of jobs left, or -1 for a runtime that gets none of them; now, ms (0 without jobs); number of registered runtimes; for each
          taken job its data, or '' when Redis has lost them, and the reply of invocations/scripts/begin-attempt.lua for its attempt, or ''
          when the runtime is to begin it}.
]]
local wait, active, marker, runtimes, fetch, alive = unpack(KEYS)
local prefix, jobs, runtimeId, token, lockMs, most, begins, ahead = unpack(ARGV)
-- On a large platform, most fetches find nothing: they end here, before the definitions of the other parts.
if redis.call('LLEN', wait) == 0 and redis.call('HGET', fetch, 'token') ~= token then
  return { 0, 0, redis.call('HLEN', runtimes) }
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

-- True when the runtime is registered, takes jobs and is not late to renew its lease.
local function mayTake()
  if redis.call('PTTL', alive) < tonumber(ARGV[11]) or redis.call('HEXISTS', runtimes, runtimeId) == 0 then
    return false
  end
  if redis.call('HEXISTS', prefix .. ':admission:capacity', 'leaving') == 1 then
    return redis.call('HEXISTS', prefix .. ':admission:offers', runtimeId) == 1
  end
  -- A process of an earlier release has counted the runtimes.
  return cjson.decode(redis.call('HGET', runtimes, runtimeId)).accepting
end

--- @include "../../invocations/scripts/include/begin-attempt.lua"

-- Time for which Redis keeps the record of a fetch (KEYS[5]), ms: longer than the recovery of a dead runtime takes.
local FETCH_MS = 3600000

-- Returns the number of jobs left. If there are any, sets the marker, which wakes another runtime; otherwise removes it, to cause no empty fetch.
local function wakeForLeft()
  local left = redis.call('LLEN', wait)
  if left > 0 then
    -- A full Redis refuses the marker; the runtimes fetch again without it, when their waits are over.
    redis.pcall('ZADD', marker, 0, '0')
  else
    redis.call('DEL', marker)
  end
  return left
end

-- Once the jobs of a fetch have this many characters, it takes no more: a job may have 4 MiB, whose copies take Redis some 20 ms.
local FETCH_LENGTH = 1048576

local function take()
  local ids, left, length = {}, redis.call('LLEN', wait), 0
  for i = 1, math.min(tonumber(most), math.ceil(left / math.max(1, redis.call('HLEN', runtimes)))) do
    local id = redis.call('RPOPLPUSH', wait, active)
    redis.call('SET', jobs .. id .. ':lock', token, 'PX', lockMs)
    redis.call('HSET', jobs .. id, 'processedOn', now, 'pb', runtimeId)
    ids[i] = id
    length = length + redis.call('HSTRLEN', jobs .. id, 'data') + redis.call('HSTRLEN', jobs .. id, 'resumption')
    if length >= FETCH_LENGTH then
      break
    end
  end
  if #ids > 0 then
    redis.call('SADD', prefix .. ':runtime:' .. runtimeId .. ':held', unpack(ids))
    redis.call('DEL', fetch)
    redis.call('HSET', fetch, 'token', token, 'jobs:' .. token, table.concat(ids, ' '))
    redis.call('PEXPIRE', fetch, FETCH_MS)
  end
  return ids
end

-- For a repeated call, the jobs of the first call that the runtime still holds; nil for a new fetch.
local function takenBefore()
  local last, taken = unpack(redis.call('HMGET', fetch, 'token', 'jobs:' .. token))
  if last ~= token then
    return nil
  end
  local ids = {}
  for id in string.gmatch(taken or '', '%S+') do
    if redis.call('HGET', jobs .. id, 'pb') == runtimeId and redis.call('GET', jobs .. id .. ':lock') == token then
      ids[#ids + 1] = id
    end
  end
  return ids
end

-- Begins an attempt and returns the reply. Returns '' after an error, for example for a damaged record: the runtime then begins the attempt itself
-- and gets the error.
local function begin(id)
  local record = prefix .. ':invocation:' .. id
  local ok, reply = pcall(beginAttempt, { record = record, job = jobs .. id, runtimes = runtimes, now = now, ahead = ahead,
    runtimeId = runtimeId, cancels = ARGV[9], cancelChannel = ARGV[10], token = token, fetched = token,
    live = tonumber(ahead) > 0 and record .. ':live' or '' })
  return ok and reply or ''
end

local ids = takenBefore()
local isRepeated = ids ~= nil
if not ids then
  if not mayTake() then
    wakeForLeft()
    return { -1, now, redis.call('HLEN', runtimes) }
  end
  ids = take()
end

-- A repeated fetch may have a smaller bound than the first, which may have begun more attempts.
local function hasBegun(id)
  return isRepeated and redis.call('HGET', prefix .. ':invocation:' .. id, 'token') == token
end

local replies = {}
for i, id in ipairs(ids) do
  local data, placement, resumption = unpack(redis.call('HMGET', jobs .. id, 'data', 'placement', 'resumption'))
  -- Admission chose the placement, and a person answered a question, after the job's data was written.
  if data and placement then
    data = '{"placement":' .. cjson.encode(placement) .. ',' .. string.sub(data, 2)
  end
  if data and resumption then
    data = '{"resumption":' .. resumption .. ',' .. string.sub(data, 2)
  end
  replies[#replies + 1] = data or ''
  replies[#replies + 1] = data and (i <= tonumber(begins) or hasBegun(id)) and begin(id) or ''
end
admitAfterBegins(now)
return { wakeForLeft(), now, redis.call('HLEN', runtimes), unpack(replies) }
