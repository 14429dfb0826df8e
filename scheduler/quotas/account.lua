-- What a tenant keeps in Redis, and whether it may keep or start more.
--- @include "./limits.lua"

-- Bytes of content that a tenant keeps in Redis, as one account. Every script that stores or drops content updates it; `quotas/README.md`
-- gives the weights. In the hash `<account>:redis`, `bytes` is the sum over all content. Each other field is a holder, a part of the content
-- with its bytes:
--   `i:<invocation>`: record, input, events and waiting messages of an invocation that has not ended;
--   `l:<function>`: its log; `u:<component>`: an uploaded component that no version uses yet;
--   `@<minute>`: content of ended invocations that expires within one minute, the last one before `<minute>` minutes since the epoch.
-- The sorted set `<account>:redis-ends` has the holders whose content expires, by the time at which they end (ms since the epoch).
-- The sum also includes content without a holder, which other hashes count: stored values, files, message queues, and versions of functions with
-- their components.
local RECORD_BYTES, EVENT_BYTES, LOG_LINE_BYTES = 2048, 64, 128
-- The expiry of a holder `@<minute>` is a multiple of this.
local LIFETIME_STEP_MS = 60000
-- Maximum holders that one call of `releaseEnded` releases.
local ENDED_AT_ONCE = 256

local function accountKey(account)
  return account .. ':redis'
end

-- Adds a change to the sum alone: for content without a holder.
local function changeBytes(account, bytes)
  if bytes ~= 0 then
    redis.call('HINCRBY', accountKey(account), 'bytes', bytes)
  end
end

-- Adds bytes, which may be negative, to a holder and to the sum.
local function holdBytes(account, holder, bytes)
  if bytes ~= 0 then
    redis.call('HINCRBY', accountKey(account), holder, bytes)
    changeBytes(account, bytes)
  end
end

-- Removes a holder with its bytes. Returns the bytes; nil when there is no such holder. The sum changes first: a full Redis refuses this first
-- write and thereby ends the script before anything has changed. It would accept an HDEL, and after it also writes that take memory
-- (`../store/even-when-full.lua`).
local function releaseBytes(account, holder)
  local bytes = redis.call('HGET', accountKey(account), holder)
  if not bytes then
    return nil
  end
  changeBytes(account, -tonumber(bytes))
  redis.call('HDEL', accountKey(account), holder)
  return tonumber(bytes)
end

-- Sets when a holder ends, ms since the epoch; a later call replaces that time.
local function endHolder(account, holder, at)
  redis.call('ZADD', account .. ':redis-ends', at, holder)
end

-- Releases the bytes of holders that have ended by `now`: Redis has dropped their content.
local function releaseEnded(account, now)
  local ends = account .. ':redis-ends'
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, ENDED_AT_ONCE)) do
    releaseBytes(account, holder)
    redis.call('ZREM', ends, holder)
  end
end

-- The sum over all content. A fault may have made it negative; it then counts as 0.
local function bytesOf(account)
  return math.max(0, tonumber(redis.call('HGET', accountKey(account), 'bytes') or 0))
end

-- Maximum expired members that one call handles.
local FORGOTTEN_AT_ONCE = 256

-- Releases the bytes of members that have expired by now. The hash `usage` has the bytes of each member and their sum in the field `bytes`. The
-- sorted set `expiries` has the members by expiry time.
local function forgetExpired(account, usage, expiries, now)
  local forgotten = redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, FORGOTTEN_AT_ONCE)
  for _, member in ipairs(forgotten) do
    local bytes = tonumber(redis.call('HGET', usage, member) or 0)
    redis.call('HINCRBY', usage, 'bytes', -bytes)
    changeBytes(account, -bytes)
    redis.call('HDEL', usage, member)
    redis.call('ZREM', expiries, member)
  end
  -- Only the field `bytes` is left, which is 0.
  if #forgotten > 0 and redis.call('HLEN', usage) == 1 then
    redis.call('DEL', usage)
  end
end

-- The time in ms, by the clock of this Redis server, by which its keys expire.
local function nowMs()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Releases the bytes of expired queues; ../messaging/messaging.lua describes `usage` and `expiries`.
local function forgetQueuesOf(account, usage, expiries)
  forgetExpired(account, usage, expiries, nowMs())
end

-- Releases the bytes of expired content, up to 256 entries of each kind, and returns the bytes that the account then has. The keys of message
-- queues begin with `lines`.
local function settledBytes(account, now)
  local prefix, tenant = string.match(account, '^(.*):account:([^:]*)$')
  releaseEnded(account, now)
  forgetExpired(account, prefix .. ':file-usage:' .. tenant, prefix .. ':file-expiries:' .. tenant, now)
  forgetQueuesOf(account, prefix .. ':lines:' .. tenant .. ':usage', prefix .. ':lines:' .. tenant .. ':expiries')
  return bytesOf(account)
end

-- nil when the tenant may keep `added` more bytes in Redis, else {quota, limit, used}.
local function bytesRefusal(account, added, now)
  local limit = added > 0 and quotaLimit(account, 'redis-bytes', '', now)
  if not limit or bytesOf(account) + added <= limit then
    return nil
  end
  local used = settledBytes(account, now)
  return used + added > limit and {'redis-bytes', limit, used} or nil
end

-- A tenant's stored content counts as one number: its stored values, the files of its invocations, its vector indexes, and the versions of
-- its functions (the record with the manifest, and the whole component, even when two versions share it). The hash `<account>:components` has the
-- bytes of each version in `<function>@<version>` and their sum in `bytes`. `Functions.runnableVersions` finds a tenant's versions by these fields.

-- Bytes of the tenant's vector indexes, which are on the disk of the index host.
local function indexBytes(account)
  return tonumber(redis.call('HGET', account .. ':indexes', 'bytes') or 0)
end

local function storedBytes(account, storedUsage, fileUsage, fileExpiries, now)
  forgetExpired(account, fileUsage, fileExpiries, now)
  return tonumber(redis.call('HGET', storedUsage, 'bytes') or 0) + tonumber(redis.call('HGET', fileUsage, 'bytes') or 0)
    + tonumber(redis.call('HGET', account .. ':components', 'bytes') or 0) + indexBytes(account)
end

-- nil when the tenant may store `added` more bytes, else {quota, limit, used}.
local function storageRefusal(account, storedUsage, fileUsage, fileExpiries, added, now)
  local limit = added > 0 and quotaLimit(account, 'storage-bytes', '', now)
  if limit then
    local used = storedBytes(account, storedUsage, fileUsage, fileExpiries, now)
    if used + added > limit then
      return {'storage-bytes', limit, used}
    end
  end
  return bytesRefusal(account, added, now)
end

-- Bytes of the tenant's compiled versions. The hash `<account>:disk` has the same fields as `<account>:components`.
local function diskBytes(account)
  return tonumber(redis.call('HGET', account .. ':disk', 'bytes') or 0)
end

-- nil when the tenant's versions may take `added` more bytes on disk, else {quota, limit, used}.
local function diskRefusal(account, added, now)
  local limit = added > 0 and quotaLimit(account, 'disk-bytes', '', now)
  local used = limit and diskBytes(account)
  return limit and used + added > limit and {'disk-bytes', limit, used} or nil
end

-- Bytes of the records (JSON texts) of the tenant's versions. The hash `<account>:records` has the same fields as `<account>:components`.
local function recordBytes(account)
  return tonumber(redis.call('HGET', account .. ':records', 'bytes') or 0)
end

-- Adds a version's bytes to the hash `counts`, once; returns true the first time.
local function countVersion(counts, version, bytes)
  if bytes == 0 or redis.call('HSETNX', counts, version, bytes) == 0 then
    return false
  end
  redis.call('HINCRBY', counts, 'bytes', bytes)
  return true
end

-- Subtracts a version's bytes again; returns them.
local function uncountVersion(counts, version)
  local bytes = tonumber(redis.call('HGET', counts, version) or 0)
  if bytes > 0 then
    redis.call('HDEL', counts, version)
    redis.call('HINCRBY', counts, 'bytes', -bytes)
  end
  return bytes
end

-- Counts a version once. `bytes` are those of its component and record together, `record` those of the record alone, `onDisk` those of the
-- compiled component.
local function countComponent(account, version, bytes, record, onDisk)
  countVersion(account .. ':disk', version, onDisk)
  countVersion(account .. ':records', version, record)
  if countVersion(account .. ':components', version, bytes) then
    changeBytes(account, bytes)
  end
end

local function uncountComponent(account, version)
  uncountVersion(account .. ':disk', version)
  uncountVersion(account .. ':records', version)
  changeBytes(account, -uncountVersion(account .. ':components', version))
end

-- The number of a tenant's invocations that count against `waiting-invocations`: those in its queue (sorted set), in a debounce delay (hash),
-- and with a question to a person (set).
local function countWaiting(queue, debounces, questions)
  return redis.call('ZCARD', queue) + redis.call('HLEN', debounces) + redis.call('SCARD', questions)
end

-- Decides whether a client may make one more invocation.

-- The counted limits, with the use of each.
local function countedUse(account, fn, now)
  local read = {}
  local limits = countedLimits(account, fn, now)
  for _, limit in ipairs(limits) do
    if not read[limit.window] then
      read[limit.window] = {readCounts(account, fn, limit.window, now)}
    end
    limit.quota = limit.kind .. '-per-' .. limit.window
    limit.used = usedOf(limit.kind, read[limit.window][limit.fn == '' and 1 or 2])
  end
  return limits
end

-- A counted quota that is used up, or nil. A limit of 0 takes precedence, because it never resets. Otherwise the quota with the longest window is
-- returned, because it resets last.
local function usedUp(limits)
  local found
  for _, limit in ipairs(limits) do
    if limit.used >= limit.limit and not (found and found.limit == 0) then
      found = limit
    end
  end
  return found
end

-- The quota of bytes or open invocations that has no room for a new invocation, or nil. An invocation is open from its submission to its end.
-- A function's `concurrent-invocations` bounds the function's open invocations. A tenant's `concurrent-invocations` refuses an invocation only when
-- it is 0: the tenant's open invocations beyond it wait, and count against `waiting-invocations`. Without that limit, `waitingCount` invocations
-- count. `bytes` is what the new invocation takes in Redis, `replaced` the number of open invocations of the function that it replaces and thus ends.
local function noRoom(account, fn, now, waitingCount, bytes, replaced)
  local full = bytesRefusal(account, bytes, now)
  if full then
    return {quota = full[1], fn = '', limit = full[2], used = full[3]}
  end
  local open, openOfFunction = unpack(redis.call('HMGET', account .. ':open', '*', fn))
  open, openOfFunction, waitingCount = tonumber(open or 0) - replaced, tonumber(openOfFunction or 0) - replaced, waitingCount - replaced
  local functionLimit = quotaLimit(account, 'concurrent-invocations', fn, now)
  if functionLimit and openOfFunction >= functionLimit then
    return {quota = 'concurrent-invocations', fn = fn, limit = functionLimit, used = openOfFunction}
  end
  local runningLimit = quotaLimit(account, 'concurrent-invocations', '', now)
  -- The invocation would wait forever.
  if runningLimit == 0 then
    return {quota = 'concurrent-invocations', fn = '', limit = 0, used = open}
  end
  local waitingLimit = quotaLimit(account, 'waiting-invocations', '', now)
  if not waitingLimit then
    return nil
  end
  local used = runningLimit and math.max(0, open - runningLimit) or waitingCount
  if (runningLimit and open >= runningLimit + waitingLimit) or (not runningLimit and waitingCount >= waitingLimit) then
    return {quota = 'waiting-invocations', fn = '', limit = waitingLimit, used = used}
  end
  return nil
end

-- True when the tenant may have one more invocation with latency targets. Their number stays within the tenant's concurrency limit: with
-- more, one of them would always wait at the head of the queue, and the tenant's other invocations would starve.
local function grantsLatency(account, now)
  local latencyLimit = quotaLimit(account, 'latency-invocations', '', now) or 0
  local runningLimit = quotaLimit(account, 'concurrent-invocations', '', now) or latencyLimit
  return redis.call('SCARD', account .. ':latency') < math.min(latencyLimit, runningLimit)
end

local function quotaText(number)
  return string.format('%.3f', number)
end

-- Limits in the form of a reply: quota, function or '', limit, used, in a flat list.
local function quotaStates(limits)
  local states = {}
  for _, limit in ipairs(limits) do
    states[#states + 1] = limit.quota
    states[#states + 1] = limit.fn
    states[#states + 1] = quotaText(limit.limit)
    states[#states + 1] = quotaText(limit.used)
  end
  return states
end

-- Refuses a request of the tenant and counts the refusal, or allows the request to be stored. Returns the refusing quota or nil, then the limits
-- with their present use.
local function admitRequest(account, fn, now, waitingCount, bytes, replaced)
  local limits = countedUse(account, fn, now)
  local refusing = usedUp(limits) or noRoom(account, fn, now, waitingCount, bytes, replaced)
  if refusing then
    -- A full Redis refuses this HINCRBY, and the request is refused without being counted. PEXPIRE must then not run: a full Redis would accept it,
    -- and after this first write also each later write of the script.
    if type(redis.pcall('HINCRBY', windowKey(account, 'minute', now), 'r:' .. refusing.quota, 1)) == 'number' then
      redis.call('PEXPIRE', windowKey(account, 'minute', now), KEPT_MS.minute)
    end
    return refusing, limits
  end
  return nil, limits
end

-- Counts a request that is stored.
local function countRequest(account, fn, now, limits)
  addUsage(account, fn, now, {[REQUESTS] = 1, [INVOCATIONS] = 1})
  redis.call('HINCRBY', account .. ':open', '*', 1)
  redis.call('HINCRBY', account .. ':open', fn, 1)
  for _, limit in ipairs(limits) do
    if limit.kind == 'requests' then
      limit.used = limit.used + 1
    end
  end
end

--- @script "read-use"
--[[
  Reads what a tenant holds now.

  KEYS[1] its queue: invocations that wait for their turn (sorted set)
  KEYS[2..4] usage of its stored values, usage and expiries of its files
  KEYS[5] its admitted use (hash): `held:<model>` expected KV pages; `held:#memory` is memory and is not counted
  KEYS[6] its waiting debounced invocations (hash)
  KEYS[7] its invocations that wait for a person (set)

  ARGV[1] prefix of the keys of its quotas
  ARGV[2] now, ms
  ARGV[3] function, or '' for none

  Returns {open invocations, those of the function, waiting invocations, bytes stored, KV pages, bytes in Redis, bytes on disk, open
  invocations with latency targets}.
]]
--- @include "../store/even-when-full.lua"

local open, one = unpack(redis.call('HMGET', ARGV[1] .. ':open', '*', ARGV[3]))
local pages = 0
local admitted = redis.call('HGETALL', KEYS[5])
for i = 1, #admitted, 2 do
  if string.sub(admitted[i], 1, 5) == 'held:' and admitted[i] ~= 'held:#memory' then
    pages = pages + tonumber(admitted[i + 1])
  end
end
return {tonumber(open or 0), tonumber(one or 0), countWaiting(KEYS[1], KEYS[6], KEYS[7]),
  storedBytes(ARGV[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[2])), pages, settledBytes(ARGV[1], tonumber(ARGV[2])),
  diskBytes(ARGV[1]), redis.call('SCARD', ARGV[1] .. ':latency')}

--- @script "repair-accounts"
--[[
  Compares the accounts of some tenants and their holders (above) with the values stored in Redis. The script that writes a value
  also updates its account. A difference therefore dates from a restore, which brings back no account of
  bytes in Redis; or it is a fault of the platform. The repair:
    - drops a holder whose invocation has ended or is gone, whose log is gone, or whose bytes are negative;
    - drops an invocation that has ended or is gone from those with latency targets;
    - adds a holder whose content expires and that is missing from `redis-ends` to this set, as due now;
    - sets a sum that does not equal the bytes of its parts.
  Each call checks some of the tenants. It reads the bytes of all holders of such a tenant. If they are many, it looks up the invocations, logs and
  ends of only a part of them; each scan of all tenants takes another part.

  KEYS[1] state of the repairs (hash): `at` time of the last repair, `cursor` position in the scan of tenants, `passed` number of tenants after
          this position that are done, `round` number of scans that have ended
  KEYS[2] names of all tenants (set)

  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] least time between two repairs, ms

  Returns the number of corrected accounts, or -1 when the last repair was less than ARGV[3] ago.
]]
--- @include "../store/even-when-full.lua"

-- A call checks at most TENANTS_LOOKED_AT tenants, and begins no further tenant once it has read HOLDERS_READ holders. Of each tenant, it looks up
-- the invocation, log or end of about HOLDERS_LOOKED_AT holders. With the default retention, a busy tenant has 10,000 holders, one for each minute
-- of the next week: reading them costs little, but a command for each would block Redis for many ms.
local TENANTS_LOOKED_AT, HOLDERS_READ, HOLDERS_LOOKED_AT = 8, 20000, 250

local prefix, now = ARGV[1], tonumber(ARGV[2])
local at, cursor, passed, round = unpack(redis.call('HMGET', KEYS[1], 'at', 'cursor', 'passed', 'round'))
at, cursor, passed, round = tonumber(at or 0), cursor or '0', tonumber(passed or 0), tonumber(round or 0)
if at <= now and now - at < tonumber(ARGV[3]) then
  return -1
end

-- True unless the holder's invocation has ended or is gone, or its log is gone. Always true for other kinds of holders.
local function isHeld(tenant, kind, name)
  if kind == 'i' then
    local status = redis.call('HGET', prefix .. ':invocation:' .. name, 'status')
    return status == 'queued' or status == 'running' or status == 'waiting'
  end
  return kind ~= 'l' or redis.call('EXISTS', prefix .. ':logs:' .. tenant .. ':' .. name) == 1
end

local function bytesIn(key)
  return tonumber(redis.call('HGET', key, 'bytes') or 0)
end

-- Corrects the account; returns true when anything was wrong.
local function putRight(tenant)
  local account = prefix .. ':account:' .. tenant
  -- Called only to release the bytes of expired content.
  settledBytes(account, now)
  local wrong, sum = false, 0
  local fields = redis.call('HGETALL', accountKey(account))
  local parts = math.max(1, math.ceil(#fields / 2 / HOLDERS_LOOKED_AT))
  for i = 1, #fields, 2 do
    local holder, bytes = fields[i], tonumber(fields[i + 1])
    local isLookedAt = (i - 1) / 2 % parts == round % parts
    local kind, name = string.match(holder, '^(%a):(.*)$')
    if holder == 'bytes' then
      bytes = 0
    elseif bytes < 0 or (isLookedAt and kind and not isHeld(tenant, kind, name)) then
      redis.call('HDEL', accountKey(account), holder)
      wrong, bytes = true, 0
    elseif isLookedAt and kind ~= 'i' and not redis.call('ZSCORE', account .. ':redis-ends', holder) then
      endHolder(account, holder, now)
      wrong = true
    end
    sum = sum + bytes
  end
  for _, id in ipairs(redis.call('SMEMBERS', account .. ':latency')) do
    if not isHeld(tenant, 'i', id) then
      redis.call('SREM', account .. ':latency', id)
      wrong = true
    end
  end
  sum = sum + bytesIn(prefix .. ':store:' .. tenant .. ':usage') + bytesIn(prefix .. ':file-usage:' .. tenant)
    + bytesIn(prefix .. ':lines:' .. tenant .. ':usage') + bytesIn(account .. ':components')
  if sum ~= bytesIn(accountKey(account)) then
    redis.call('HSET', accountKey(account), 'bytes', sum)
    wrong = true
  end
  if sum == 0 and redis.call('HLEN', accountKey(account)) == 1 then
    redis.call('DEL', accountKey(account))
  end
  return wrong
end

-- A scan of a small set returns all of it, whatever its COUNT.
local nextCursor, names = unpack(redis.call('SSCAN', KEYS[2], cursor, 'COUNT', TENANTS_LOOKED_AT))
local corrected, holders, last = 0, 0, math.min(#names, passed + TENANTS_LOOKED_AT)
while passed < last and holders < HOLDERS_READ do
  local tenant = names[passed + 1]
  holders = holders + redis.call('HLEN', accountKey(prefix .. ':account:' .. tenant))
  corrected = corrected + (putRight(tenant) and 1 or 0)
  passed = passed + 1
end
if passed >= #names then
  cursor, passed, round = nextCursor, 0, round + (nextCursor == '0' and 1 or 0)
end
redis.call('HSET', KEYS[1], 'at', now, 'cursor', cursor, 'passed', passed, 'round', round)
return corrected
