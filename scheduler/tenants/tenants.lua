-- Tenants, their API keys, and the log of administrative acts.

-- Adds an administrative act to the log of its tenant and to the log of all tenants. Each log consists of two streams, which are bounded
-- separately and read as one.

-- The id of a log's next entry: it is later than all ids in both streams of the log, so no two entries of a log share an id.
local function later_id(stream, other)
  local time = redis.call('TIME')
  local ms, sequence = time[1] * 1000 + math.floor(time[2] / 1000), 0
  for _, key in ipairs({ stream, other }) do
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    if last then
      local last_ms, last_sequence = last[1]:match('^(%d+)-(%d+)$')
      last_ms, last_sequence = tonumber(last_ms), tonumber(last_sequence)
      if last_ms > ms or (last_ms == ms and last_sequence >= sequence) then
        ms, sequence = last_ms, last_sequence + 1
      end
    end
  end
  return string.format('%.0f-%.0f', ms, sequence)
end

-- KEYS[at], KEYS[at + 1] the log of the tenant: the stream that takes this act, and the other stream
-- KEYS[at + 2], KEYS[at + 3] the same for the log of all tenants
-- fields: approximate maximum of entries in KEYS[at], the same for KEYS[at + 2], then fields and values of the entry; an empty list writes
-- nothing
local function record_act(at, fields)
  if #fields < 3 then
    return
  end
  for i = 0, 2, 2 do
    local id = later_id(KEYS[at + i], KEYS[at + i + 1])
    redis.call('XADD', KEYS[at + i], 'MAXLEN', '~', fields[1 + i / 2], id, unpack(fields, 3))
  end
end

-- Functions for the keys of a tenant: KEYS[1] (hash), id to sha256. The record of a key is the hash `<ARGV[1]><sha256>`. ARGV[2] now, ms;
-- ARGV[3] most keys of a tenant.
local function record_of(sha256)
  return ARGV[1] .. sha256
end

-- True when the key with this record works now and for `for_ms` longer.
local function works(record, for_ms)
  local expiry = redis.call('HGET', record, 'expiresAt')
  return redis.call('EXISTS', record) == 1 and (not expiry or tonumber(expiry) > tonumber(ARGV[2]) + (for_ms or 0))
end

-- True when the tenant may have one more key. Drops keys whose record is gone. When the tenant has as many keys as it may, also drops expired
-- keys whose record is still kept.
local function has_room()
  local all = redis.call('HGETALL', KEYS[1])
  local count = #all / 2
  for i = 1, #all, 2 do
    local record = record_of(all[i + 1])
    local there = redis.call('EXISTS', record) == 1
    if not there or (count >= tonumber(ARGV[3]) and not works(record)) then
      redis.call('HDEL', KEYS[1], all[i])
      redis.call('DEL', record)
      count = count - 1
    end
  end
  return count < tonumber(ARGV[3])
end

--- @script "create-tenant"
--[[
  Creates a tenant. A repeated call only returns the reply.

  KEYS[1] names of all tenants (set)
  KEYS[2] the tenant's record (hash)
  KEYS[3] reply to this call (string)

  ARGV[1] name
  ARGV[2] maximum tenants of the installation
  ARGV[3] how long the reply is kept, ms
  ARGV[4…] fields and values of the record

  Returns 1 created, 0 the name is taken, -1 there are as many tenants as allowed.
]]
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('SADD', KEYS[1], ARGV[1])
  return 0
end
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return -1
end
redis.call('SET', KEYS[3], '1', 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], unpack(ARGV, 4))
return 1

--- @script "change-tenant"
--[[
  Changes fields of an existing tenant. Admission reads the fields `weight` and `suspended`, `create` of ../invocations/submission.lua reads `latency`.

  KEYS[1] the tenant's record (hash)

  ARGV[1…] fields and values

  Returns 1 changed, 0 there is no such tenant.
]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if #ARGV > 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return 1

--- @script "create-key"
--[[
  Stores a key of a tenant (its hash, never the key) and records the act. A repeated call only returns the reply.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] the tenant's record (hash)
  KEYS[3] record of the key (hash)
  KEYS[4…7] see above

  ARGV[1..3] see above
  ARGV[4] id
  ARGV[5] sha256
  ARGV[6] expiry of the record, ms since the epoch; '' never
  ARGV[7] fields and values of the record, a JSON list
  ARGV[8…] the act, see above

  Returns 1 stored, 0 there is no such tenant, -1 the tenant has as many keys as it may.
]]

if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  return 0
end
if not has_room() then
  return -1
end
redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
redis.call('HSET', KEYS[3], unpack(cjson.decode(ARGV[7])))
if ARGV[6] ~= '' then
  redis.call('PEXPIREAT', KEYS[3], ARGV[6])
end
record_act(4, { unpack(ARGV, 8) })
return 1

--- @script "rotate-key"
--[[
  Replaces a key by one with the same name, scopes and expiry, and records the act. The old key works until the end of a grace period.
  A repeated call only returns the reply.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] record of the old key (hash)
  KEYS[3] record of the new key (hash)
  KEYS[4…7] see above

  ARGV[1..3] see above
  ARGV[4] id of the old key
  ARGV[5] id of the new key
  ARGV[6] sha256 of the new key
  ARGV[7] creation time of the new key, ISO 8601
  ARGV[8] end of the grace period, ms since the epoch
  ARGV[9] how long the record of an expired key is kept, ms
  ARGV[10…] the act, see above

  Returns 1 rotated, 0 there is no such key or it has expired, -1 the tenant has as many keys as it may.
]]

if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0 or not works(KEYS[2]) then
  return 0
end
if not has_room() then
  return -1
end
redis.call('HSET', KEYS[1], ARGV[5], ARGV[6])
for _, field in ipairs({ 'tenant', 'name', 'scopes', 'expiresAt' }) do
  local value = redis.call('HGET', KEYS[2], field)
  if value then
    redis.call('HSET', KEYS[3], field, value)
  end
end
redis.call('HSET', KEYS[3], 'createdAt', ARGV[7])
local expiry = tonumber(redis.call('HGET', KEYS[2], 'expiresAt') or '') or math.huge
if expiry < math.huge then
  redis.call('PEXPIREAT', KEYS[3], string.format('%.0f', expiry + tonumber(ARGV[9])))
end
local grace = math.min(expiry, tonumber(ARGV[8]))
redis.call('HSET', KEYS[2], 'expiresAt', string.format('%.0f', grace))
redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', grace + tonumber(ARGV[9])))
record_act(4, { unpack(ARGV, 10) })
return 1

--- @script "remove-key"
--[[
  Removes a key and records the act. A repeated call only returns the reply.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] record of the key (hash)
  KEYS[3] reply to this call (string)
  KEYS[4…7] see above

  ARGV[1..3] see above
  ARGV[4] id
  ARGV[5] ms: the script refuses to remove a key that administers the tenant unless another such key works for longer than this; '' removes
          any key
  ARGV[6] how long the reply is kept, ms
  ARGV[7…] the act, see above

  Returns 1 removed, 0 there is no such key, -1 refused: no other key administers the tenant for long enough.
]]
--- @include "../store/even-when-full.lua"

local function administers(record, for_ms)
  local scopes = ' ' .. (redis.call('HGET', record, 'scopes') or '') .. ' '
  return works(record, for_ms) and (scopes:find(' admin ', 1, true) or scopes:find(' operator ', 1, true)) and true or false
end

local function is_last()
  if not administers(KEYS[2], 0) then
    return false
  end
  for _, sha256 in ipairs(redis.call('HVALS', KEYS[1])) do
    local record = record_of(sha256)
    if record ~= KEYS[2] and administers(record, tonumber(ARGV[5])) then
      return false
    end
  end
  return true
end

if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0 then
  return 0
end
-- Redis has dropped the record, some time after the key expired: the key no longer exists, and leaves the tenant's keys.
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[4])
  return 0
end
if ARGV[5] ~= '' and is_last() then
  return -1
end
redis.call('HDEL', KEYS[1], ARGV[4])
redis.call('SET', KEYS[3], '1', 'PX', ARGV[6])
record_act(4, { unpack(ARGV, 7) })
redis.call('DEL', KEYS[2])
return 1

--- @script "touch-key"
--[[
  Stores the time of a key's last use, unless the key was removed.

  KEYS[1] record of the key (hash)

  ARGV[1] time of use, ms since the epoch

  Returns 1 stored, 0 the key is gone or was used later.
]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if tonumber(redis.call('HGET', KEYS[1], 'lastUsedAt') or '0') >= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'lastUsedAt', ARGV[1])
return 1

--- @script "record-act"
--[[
  Records an administrative act. A repeated call only returns the reply.

  KEYS[1] reply to this call (string)
  KEYS[2…5] see above

  ARGV[1] how long the reply is kept, ms
  ARGV[2…] the act, see above

  Returns 1.
]]
--- @include "../store/even-when-full.lua"

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
  record_act(2, { unpack(ARGV, 2) })
end
return 1
