-- The jobs that runtimes fetch and leave.

--- @script "take-jobs"
--[[
  Hands admitted jobs to a runtime: from BullMQ's list `wait` to its list `active`, with lock and holder, as BullMQ's own moveToActive does
  for one job. A call hands over at most one runtime's equal part of the waiting jobs, and fewer when they are large. It hands none to a runtime
  that takes no jobs, is not registered, or is late to renew its lease: the fetch of a frozen runtime may still wait in Redis. The script also
  begins the attempts of the first jobs. A call that is repeated with the same token hands over the same jobs, since their attempts may have begun.
  Until the runtime has said that it received the jobs, none of the attempts that the script began can have run; `leave-active` relies on this.

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
          taken job its data, or '' when Redis has lost them, and the reply of `begin-attempt` of ../invocations/attempts.lua for its attempt, or ''
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
  return redis.call('HEXISTS', prefix .. ':admission:offers', runtimeId) == 1
end

--- @include "../invocations/attempts.lua"

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

--- @script "leave-active"
--[[
  Takes a job from its runtime, and ends or requeues its invocation in one step. The first case that holds decides:
    - the invocation has ended, or its record is gone, or another runtime runs it: the job is dropped;
    - the invocation has not begun, and the mode is not `over`: back to its place in the queue;
    - the invocation is running, and a client has requested a cancel: cancelled;
    - the mode is not `over`, and the attempt was begun by a fetch whose jobs the runtime has not received (`take-jobs`): back to its place in
      the queue. Nothing of the attempt can have run, so it does not count;
    - the mode is not `over`, and the invocation may be restarted (it has attempts left, and all its client's messages are still stored): back to
      its place in the queue, in the next epoch;
    - any other case: failed, in the next epoch. With mode `over`, the runtime should have ended the invocation.

  A tenant's queue is in order of arrival, so a requeued invocation takes its earlier place.

  KEYS[1] record (hash)
  KEYS[2] events (stream)
  KEYS[3] inbox (list)
  KEYS[4] deadlines (sorted set)
  KEYS[5] BullMQ job (hash)
  KEYS[6] BullMQ active (list)
  KEYS[7] BullMQ stalled (set)

  ARGV[1..8] see ../invocations/endings.lua
  ARGV[9] runtime that holds the job
  ARGV[10] mode: over (the runtime is done with it) | lost (the runtime is dead) | return (the runtime gives it back)
  ARGV[11] failure code
  ARGV[12] failure message
  ARGV[13] data of the error event
  ARGV[14] maximum attempts of a restartable invocation
  ARGV[15] prefix of every key
  ARGV[16] token of the fetch, or '' for any: the same runtime may have fetched the job again since
  ARGV[17] cause of the end, for an invocation that starts again

  Returns 'dropped' | 'waiting' | 'cancelled', 'not-held' when the runtime does not hold the job, {'failed', tenant, function}, or
  {'restarted', tenant, function} for an attempt that the runtime received and whose invocation starts again.
]]
--- @include "../invocations/endings.lua"

local record, job, active = KEYS[1], KEYS[5], KEYS[6]
local id, now, runtimeId, mode, prefix, token = ARGV[1], ARGV[4], ARGV[9], ARGV[10], ARGV[15], ARGV[16]

if redis.call('HGET', job, 'pb') ~= runtimeId or (token ~= '' and redis.call('GET', job .. ':lock') ~= token) then
  return 'not-held'
end
-- Search from the tail, where the oldest jobs are.
if redis.call('LREM', active, -1, id) == 0 then
  return 'not-held'
end
redis.call('SREM', prefix .. ':runtime:' .. runtimeId .. ':held', id)
local fetchedBy = redis.call('GET', job .. ':lock')
redis.call('DEL', job .. ':lock')
redis.call('SREM', KEYS[7], id)

local function drop()
  redis.call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end

local function backToQueue(tenant, arrival)
  changeAdmission(prefix, now, function(a) enterQueue(a, tenant, id, arrival) end)
end

local status, epoch, seq, owner, restartable, attempts, cancelReason, arrival, tenant, cut, begunBy, account, granted, fn = unpack(redis.call('HMGET',
  record, 'status', 'epoch', 'seq', 'runtimeId', 'restartable', 'attempts', 'cancelReason', 'arrival', 'tenant', 'inboxCut', 'token', 'account',
  'granted', 'function'))

-- True when the fetch that handed over the job also began its attempt, and the runtime has not said that it received the jobs.
local function isUnreceived()
  local jobs = begunBy and begunBy == fetchedBy
    and redis.call('HGET', prefix .. ':runtime:' .. runtimeId .. ':fetch', 'jobs:' .. begunBy)
  return jobs and string.find(' ' .. jobs .. ' ', ' ' .. id .. ' ', 1, true)
end

if status ~= 'queued' and status ~= 'running' then
  -- The invocation's end removed the ledger entry, unless Redis lost the record.
  if redis.call('HEXISTS', prefix .. ':admission:ledger', id) == 1 then
    changeAdmission(prefix, now, function(a) leaveAdmission(a, nil, id) end)
  end
  drop()
  return 'dropped'
end
if status == 'queued' and mode ~= 'over' then
  backToQueue(tenant, arrival)
  return 'waiting'
end
if status == 'running' and owner ~= runtimeId then
  drop()
  return 'dropped'
end

if status == 'running' and cancelReason then
  platformFailure(endArguments(), epoch, seq, 'cancelled', cancelReason, cjson.encode({ code = 'cancelled', message = cancelReason }))
  drop()
  return 'cancelled'
end
if status == 'running' and mode ~= 'over' and isUnreceived() then
  redis.call('HSET', record, 'status', 'queued', 'epoch', tonumber(epoch) + 1, 'attempts', tonumber(attempts) - 1)
  redis.call('HDEL', record, 'runtimeId', 'token', 'startedAt', 'shown', 'granted')
  if granted then
    returnGrant(account, id, 0, tonumber(now))
  end
  backToQueue(tenant, arrival)
  return 'waiting'
end
if status == 'running' and mode ~= 'over' and restartable == '1' and not cut and tonumber(attempts) < tonumber(ARGV[14]) then
  giveUpAttempt(endArguments(), epoch, passLostTail(endArguments(), seq), ARGV[17] .. ' It starts again from the beginning.')
  backToQueue(tenant, arrival)
  return {'restarted', tenant, fn}
end
platformFailure(endArguments(), epoch, seq, ARGV[11], ARGV[12], ARGV[13])
drop()
return {'failed', tenant, fn}

--- @script "orphans"
--[[
  Searches for active jobs and children whose runtime is not registered: the runtime took them after it was declared dead. Also searches for
  children whose runtime is registered, but whose parent's attempt is over: the recovery of that runtime broke off, and it has registered again.

  KEYS[1] BullMQ active (list)
  KEYS[2] children that have not ended (hash), id to runtime
  KEYS[3] registered runtimes (hash)
  KEYS[4] times of the reapers' searches (hash): `orphansAt`, the last search by this script, ms by the clock of Redis
  ARGV[1] prefix of the keys of jobs
  ARGV[2] least time between two searches, ms
  ARGV[3] prefix of the keys of invocations' records

  Returns {{job, runtime, token of its fetch or '', ...}, {child, runtime, ...}}, or nothing when the last search was less than ARGV[2] ago.
]]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('HGET', KEYS[4], 'orphansAt') or 0)
if last <= now and now - last < tonumber(ARGV[2]) then
  return false
end
-- A full Redis refuses the write; then every caller searches.
redis.pcall('HSET', KEYS[4], 'orphansAt', now)

-- Maximum number of children whose parents one call reads, since Redis serves no other client meanwhile. The call chooses them at random.
local MOST_PARENTS = 1000

local registered = {}
for _, id in ipairs(redis.call('HKEYS', KEYS[3])) do
  registered[id] = true
end
local jobs, children = {}, {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local holder = redis.call('HGET', ARGV[1] .. id, 'pb')
  if holder and not registered[holder] then
    jobs[#jobs + 1] = id
    jobs[#jobs + 1] = holder
    jobs[#jobs + 1] = redis.call('GET', ARGV[1] .. id .. ':lock') or ''
  end
end
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  if not registered[all[i + 1]] then
    children[#children + 1] = all[i]
    children[#children + 1] = all[i + 1]
  end
end
-- True when the attempt that launched a child still runs. A damaged record counts as one without fields.
local function isParentRunning(child)
  local parent, attempt = unpack(redis.pcall('HMGET', ARGV[3] .. child, 'parent', 'parentEpoch'))
  local status, epoch = unpack(parent and redis.pcall('HMGET', ARGV[3] .. parent, 'status', 'epoch') or {})
  return status == 'running' and epoch == attempt
end
local some = redis.call('HRANDFIELD', KEYS[2], MOST_PARENTS, 'WITHVALUES')
for i = 1, #some, 2 do
  if registered[some[i + 1]] and not isParentRunning(some[i]) then
    children[#children + 1] = some[i]
    children[#children + 1] = some[i + 1]
  end
end
return { jobs, children }
