-- New invocations.

-- Debounced invocations wait outside their tenants' queues until their delay has passed. `<prefix>:debounced` (sorted set) has their ids by
-- the end of the delay. The field `debounceKey` of a record names the tenant's hash of waiting invocations. In that hash, the field
-- `debounceField` (function and debounce key) holds the id and the time of the first submission.

-- Maximum debounce keys of a tenant for which an invocation waits at once.
local MAX_DEBOUNCE_KEYS = 1000

-- Returns the id of the invocation that waits with the same function and key, and the time of the first submission since the delay began; nil and
-- `now` when none waits. An entry whose invocation Redis has lost does not count.
local function debouncedBefore(given, now)
  local id, first = string.match(redis.call('HGET', given.debounceKey, given.debounceField) or '', '^(%S+) (%d+)$')
  if id and redis.call('HGET', given.prefix .. ':invocation:' .. id, 'status') == 'queued' then
    return id, tonumber(first)
  end
  return nil, now
end

-- Lets an invocation wait; returns the time at which its delay ends.
local function debounce(given, id, now, first)
  local till = math.min(now + tonumber(given.debounceDelayMs), first + tonumber(given.debounceMaxMs))
  redis.call('HSET', given.debounceKey, given.debounceField, id .. ' ' .. string.format('%.0f', first))
  redis.call('ZADD', given.prefix .. ':debounced', till, id)
  return till
end

--- @script "create"
--[[
  Stores the records of new invocations and puts the invocations into their tenants' queues, then admits those that may start. Each has its
  own outcome.

  KEYS[1] arrivals (counter)
  KEYS[2] deadlines (sorted set)
  KEYS[3, 8, ...] for each invocation: record (hash); prefix of the keys of the tenant's lists of invocations, see listing.lua;
    idempotency key (string), or the record again when the request has none; the tenant's queue (sorted set by arrival); BullMQ job (hash)

  ARGV[1] now, ms
  ARGV[2] retention of idempotency keys after the end, ms
  ARGV[3] maximum ended invocations in a function's list
  ARGV[4] maximum ended invocations in a tenant's list
  ARGV[5] retention of records, ms. Lists drop ended invocations that were submitted longer ago and have no record
  ARGV[5..8] that retention and the others, as `keptFor` in endings.lua takes them; for the invocations that are replaced
  ARGV[9...] for each invocation:
    - id
    - submitted at, ms
    - deadline, ms after submission
    - hash of function and body, which distinguishes requests with the same idempotency key, or '' without a key
    - number of the further fields and values
    - number of the texts of the basis, 0 without a basis
    - further fields of the record, each followed by its value. Among them: `prefix` (prefix of every key); `debounceKey`, `debounceField`,
      `debounceDelayMs` and `debounceMaxMs` (see above); and `latency`, JSON text: the function's latency targets, or `false`
      for none. Without `latency`, the targets of the tenant's record apply. Granted targets become part of the record and the job
    - the basis, the state of the registry from which the version was chosen: a text and the reference (see
      ../functions/functions.lua), and the keys of the functions that were searched, the found one last
    - the job as JSON text, without its arrival

  Returns for each invocation
          {1, arrival, end, replaced, quotas}; `arrival` is its place in the order of all invocations, `end` the time when its debounce ends, or 0;
            `replaced` is the invocation that this one superseded, or ''. The same, with '', when the record already exists (a command sent
            twice).
          {0, id, quotas} when the idempotency key belongs to invocation `id` of the same function and body; this does not count as a request.
          {-2, id} when the idempotency key belongs to invocation `id` of another function or body; nothing was stored.
          {-1, quota, quotas} when a quota has no room; only the refusal was counted (a command sent twice counts it again).
          {-5} when the version is not deployed (any more); nothing was stored.
          {-9} when the reference does not lead to the basis any more; nothing was stored.
          {-7} when the version is quarantined; nothing was stored.
          {-10, limit} when `limit` invocations with the concurrency key have not ended, and no more are allowed; nothing was stored.
          {-11, limit} when `limit` debounce keys of the tenant wait, and no more are allowed; nothing was stored.
          {-6, MiB} when the instance may take more memory than all runtimes together have; nothing was stored.
          {-8, text of the error}
          A quota is four texts: name, function or '', limit, used; `quotas` are the quotas that limit this request.
]]
--- @include "../store/store.lua"
--- @include "./listing.lua"
--- @include "../functions/functions.lua"
--- @include "../quarantine/quarantine.lua"
--- @include "../quotas/limits.lua"
--- @include "../usage/usage.lua"
--- @include "../quotas/account.lua"
--- @include "../admission/rules.lua"
--- @include "./endings.lua"

-- HEAD is the number of arguments before those of the first invocation, HEAD_OF_ONE that of the fixed arguments of each invocation, KEYS_OF_ONE
-- that of its keys.
local HEAD, HEAD_OF_ONE, KEYS_OF_ONE = 8, 6, 5
-- An invocation with latency targets gets an arrival that is smaller by this number. In its tenant's queue, and in the competition for memory
-- on a GPU host, it thus overtakes the 10,000 invocations that arrived last. It overtakes no earlier ones.
local PLACES_AHEAD = 10000
local arrivals, deadlines, now, idempotencyMs = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])

-- Stored invocations that are not in their queues yet.
local entering = {}

local function enterQueues()
  if #entering > 0 then
    changeAdmission(entering[1].prefix, now, function(a)
      for _, one in ipairs(entering) do
        enterQueue(a, one.tenant, one.id, one.arrival)
      end
    end)
  end
  entering = {}
end

-- True when the reference still leads to the same function and versions; the texts of the basis are ARGV[first...last].
local function isCurrent(first, last)
  local functions = {unpack(ARGV, first + 2, last)}
  local i, basis = findServing(functions, ARGV[first + 1])
  return i == #functions and basis == ARGV[first]
end

-- The granted latency targets of an invocation as JSON text, or nil.
local function latencyOf(given, now)
  if given.latency == 'false' or not grantsLatency(given.account, now) then
    return nil
  end
  local wanted = given.latency or redis.call('HGET', given.prefix .. ':tenant:' .. given.tenant, 'latency')
  return wanted and wanted ~= '' and wanted or nil
end

-- Maximum open invocations of a full concurrency key that one call checks for lost records.
local CHECKED_AT_ONCE = 16

-- True when the open invocations with a concurrency key leave room for one more. When they do not, first removes some whose records Redis has
-- lost: their ends will never remove them. `replaced` is an invocation that ends when the new one is stored, or nil.
local function hasConcurrency(key, limit, prefix, replaced)
  if replaced and redis.call('SISMEMBER', key, replaced) == 1 then
    limit = limit + 1
  end
  if redis.call('SCARD', key) < limit then
    return true
  end
  for _, id in ipairs(redis.call('SRANDMEMBER', key, CHECKED_AT_ONCE)) do
    if redis.call('EXISTS', prefix .. ':invocation:' .. id) == 0 then
      -- A full Redis accepts an SREM as the first write, and then all later writes of the script. This INCRBY changes nothing, but a full
      -- Redis refuses it: the submission fails.
      redis.call('INCRBY', KEYS[1], 0)
      redis.call('SREM', key, id)
    end
  end
  return redis.call('SCARD', key) < limit
end

-- Given fields that are not copied to the record: `create` adds `latency` only when granted, and `notBefore` in place of the debounce times.
local NOT_KEPT = {latency = true, debounceDelayMs = true, debounceMaxMs = true}

-- Bytes that the texts of a client's headers take in Redis. Each of the three keys is stored twice: in the record, and in or as another key.
local function headerBytes(given, idempotencyKey)
  return #(given.webhookUrl or '') + 2 * (#idempotencyKey + #(given.concurrencyKey or '') + #(given.debounceField or ''))
end

-- Ends a debounced invocation because a later one takes its place.
local function replace(prefix, id, successor)
  local record = prefix .. ':invocation:' .. id
  local epoch, seq = unpack(redis.call('HMGET', record, 'epoch', 'seq'))
  redis.call('HSET', record, 'successor', successor)
  local a = keptFor(now, ARGV[5], ARGV[6], ARGV[7], ARGV[8])
  a.record, a.events, a.inbox, a.deadlines = record, record .. ':events', record .. ':inbox', deadlines
  a.id, a.live, a.inboxChannel = id, record .. ':live', record .. ':inbox-channel'
  local message = 'A later invocation with the same debounce key takes its place: ' .. successor .. '.'
  platformFailure(a, epoch, seq, 'superseded', message, cjson.encode({ code = 'superseded', message = message, successor = successor }))
end

-- Stores one invocation; `place` is the index of its first key, `at` that of its first argument. `given` holds the further fields by name.
local function create(place, at)
  local record, listing, idempotency, queue, job = unpack(KEYS, place, place + KEYS_OF_ONE - 1)
  local id, submittedAt, deadlineMs, fingerprint = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local first, last = at + HEAD_OF_ONE, at + HEAD_OF_ONE + ARGV[at + 4] - 1
  local lastOfBasis = last + ARGV[at + 5]
  local data = ARGV[lastOfBasis + 1]
  local given = {}
  for i = first, last, 2 do
    given[ARGV[i]] = ARGV[i + 1]
  end
  local account, fn = given.account, given['function']

  local knownArrival, waitsUntil = unpack(redis.call('HMGET', record, 'arrival', 'notBefore'))
  if knownArrival then
    return {1, tonumber(knownArrival), tonumber(waitsUntil or 0), '', unpack(quotaStates(countedUse(account, fn, now)))}
  end
  if idempotency ~= record then
    local earlier = redis.call('GET', idempotency)
    if earlier then
      local earlierId, earlierFingerprint = string.match(earlier, '^(%S+) (.*)$')
      if earlierFingerprint ~= fingerprint then
        return {-2, earlierId}
      end
      return {0, earlierId, unpack(quotaStates(countedUse(account, fn, now)))}
    end
  end
  if lastOfBasis > last and not isCurrent(last + 1, lastOfBasis) then
    return {-9}
  end
  if not isDeployed(given) then
    return {-5}
  end
  if standingOf(given.conductKey, given.tenant, now) == 'quarantined' then
    return {-7}
  end
  local memory = tonumber(redis.call('HGET', given.prefix .. ':admission:capacity', 'pages:#memory') or nil)
  if memory and tonumber(given.memoryMb or 0) > memory then
    return {-6, memory}
  end
  local replaced, firstAt
  if given.debounceKey then
    replaced, firstAt = debouncedBefore(given, now)
    if redis.call('HEXISTS', given.debounceKey, given.debounceField) == 0 and redis.call('HLEN', given.debounceKey) >= MAX_DEBOUNCE_KEYS then
      return {-11, MAX_DEBOUNCE_KEYS}
    end
  end
  if given.concurrencyKey and not hasConcurrency(given.concurrencyKey, tonumber(given.concurrencyLimit), given.prefix, replaced) then
    return {-10, tonumber(given.concurrencyLimit)}
  end
  -- The quota counts invocations that wait. Admission may start some of those stored so far, so put them into their queues before the count.
  if quotaLimit(account, 'waiting-invocations', '', now) then
    enterQueues()
  end
  local waitingCount = countWaiting(queue, given.prefix .. ':debounces:' .. given.tenant, given.prefix .. ':questions:' .. given.tenant)
  local texts = headerBytes(given, idempotency ~= record and idempotency or '')
  local refusing, limits = admitRequest(account, fn, now, waitingCount, RECORD_BYTES + texts + #data, replaced and 1 or 0)
  if refusing then
    local states = quotaStates(limits)
    return {-1, refusing.quota, refusing.fn, quotaText(refusing.limit), quotaText(refusing.used), unpack(states)}
  end
  -- A Redis at its memory limit refuses only a script's first write, and only if that may take memory (../store/even-when-full.lua).
  -- INCR may, so such a Redis refuses the INCR and stores nothing.
  local arrival = redis.call('INCR', arrivals)
  if replaced then
    replace(given.prefix, replaced, id)
  end
  local latency = latencyOf(given, now)
  local fields = {}
  for i = first, last, 2 do
    if not NOT_KEPT[ARGV[i]] then
      fields[#fields + 1] = ARGV[i]
      fields[#fields + 1] = ARGV[i + 1]
    end
  end
  if latency then
    fields[#fields + 1] = 'latency'
    fields[#fields + 1] = latency
    arrival = math.max(1, arrival - PLACES_AHEAD)
    redis.call('SADD', account .. ':latency', id)
  end
  for _, value in ipairs({'id', id, 'status', 'queued', 'arrival', arrival, 'epoch', 0, 'attempts', 0, 'seq', 0, 'bytes', 0, 'submittedAt',
    submittedAt, 'deadlineMs', deadlineMs, 'listing', listing, 'inputBytes', #data}) do
    fields[#fields + 1] = value
  end
  if texts > 0 then
    for _, value in ipairs({'headerBytes', texts}) do
      fields[#fields + 1] = value
    end
  end
  if idempotency ~= record then
    -- Keep the key at least until the deadline; the invocation's end sets the final expiry.
    redis.call('SET', idempotency, id .. ' ' .. fingerprint, 'PX', idempotencyMs + deadlineMs)
    for _, value in ipairs({'idempotencyKey', idempotency, 'idempotencyMs', idempotencyMs}) do
      fields[#fields + 1] = value
    end
  end
  local notBefore = given.debounceKey and debounce(given, id, now, firstAt)
  if notBefore then
    fields[#fields + 1] = 'notBefore'
    fields[#fields + 1] = notBefore
  end
  redis.call('HSET', record, unpack(fields))
  if given.concurrencyKey then
    redis.call('SADD', given.concurrencyKey, id)
  end
  holdBytes(account, 'i:' .. id, RECORD_BYTES + texts + #data)
  addUnfinished(given, id)
  gather('ZADD', deadlines, submittedAt + deadlineMs, id)
  listOpen(listing, fn, id, submittedAt, ARGV[4], ARGV[3], tonumber(ARGV[5]))
  countRequest(account, fn, now, limits)
  -- Create the BullMQ job as its runtime gets it; admission puts the job into BullMQ's lists. The arrival comes first in the job's JSON object:
  -- `answer` of questions.lua and `release-debounced` replace it there.
  redis.call('HSET', job, 'name', 'invoke', 'data', '{"arrival":' .. arrival .. (latency and ',"latency":' .. latency or '') .. ',' ..
    string.sub(data, 2), 'opts', '{}', 'timestamp',
    submittedAt, 'delay', 0, 'priority', 0)
  if not given.debounceKey then
    entering[#entering + 1] = { prefix = given.prefix, tenant = given.tenant, id = id, arrival = arrival }
  end
  return {1, arrival, notBefore or 0, replaced or '', unpack(quotaStates(limits))}
end

local replies, at = {}, HEAD + 1
for i = 1, (#KEYS - 2) / KEYS_OF_ONE do
  local ok, reply = pcall(create, 3 + (i - 1) * KEYS_OF_ONE, at)
  replies[i] = ok and reply or {-8, type(reply) == 'table' and reply.err or tostring(reply)}
  at = at + HEAD_OF_ONE + ARGV[at + 4] + ARGV[at + 5] + 1
end
runGathered()
enterQueues()
return replies

--- @script "release-debounced"
--[[
  Puts the invocations whose debounce delay has passed into their tenants' queues, as if they were submitted now.

  KEYS[1] debounced invocations (sorted set)
  KEYS[2] arrivals (counter)

  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] maximum invocations to release

  Returns {number of released invocations, 1 when more may wait, else 0}.
]]
--- @include "../store/even-when-full.lua"
--- @include "../admission/rules.lua"
--- @include "./endings.lua"

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
    -- arrival, which `create` has moved ahead.
    local arrival = tonumber(before)
    if redis.call('HEXISTS', key, 'latency') == 0 then
      arrival = redis.call('INCR', KEYS[2])
      redis.call('HSET', job, 'data', replacedIn(data, '^{"arrival":%d+', '{"arrival":' .. arrival))
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
