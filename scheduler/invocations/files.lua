-- The files of invocations.
--- @include "../quotas/account.lua"

-- Bytes of all stored files of a tenant. The record of each of its invocations holds the keys of the counts:
--   fileUsageKey (hash): `bytes` in all, and by invocation;
--   fileExpiriesKey (sorted set): ended invocations by the expiry time of their files.

local function fileUsage(record)
  local usage = redis.call('HGET', record, 'fileUsageKey')
  return usage and tonumber(redis.call('HGET', usage, 'bytes') or 0) or 0
end

local function addFileUsage(record, id, bytes)
  local usage, account = unpack(redis.call('HMGET', record, 'fileUsageKey', 'account'))
  if usage then
    changeBytes(account, bytes)
    redis.call('HINCRBY', usage, 'bytes', bytes)
    redis.call('HINCRBY', usage, id, bytes)
  end
end

-- Sets the expiry time of an ended invocation's files.
local function expireFiles(record, id, at)
  local usage, expiries = unpack(redis.call('HMGET', record, 'fileUsageKey', 'fileExpiriesKey'))
  if usage and redis.call('HEXISTS', usage, id) == 1 then
    redis.call('ZADD', expiries, at, id)
  end
end

-- Releases the bytes of files that have expired by now.
local function forgetFiles(record, now)
  local usage, expiries, account = unpack(redis.call('HMGET', record, 'fileUsageKey', 'fileExpiriesKey', 'account'))
  if not usage then
    return
  end
  forgetExpired(account, usage, expiries, now)
end

--- @script "file-put"
--[[
  Puts a file of an invocation that has not ended, replacing one of the same name. Idempotent.

  KEYS[1] record (hash)
  KEYS[2] files (hash): name to JSON
  KEYS[3] contents (hash): name to bytes

  ARGV[1] inbox channel, on which waiters hear of new files
  ARGV[2] name
  ARGV[3] content
  ARGV[4] description of the file as JSON text
  ARGV[5] epoch of the inferlet's attempt, or '' for the client
  ARGV[6] now, ms
  ARGV[7] maximum files of the invocation
  ARGV[8] maximum bytes of all its files
  ARGV[9] maximum bytes of all files of the root's family, names and descriptions included
  ARGV[10] maximum bytes of all files of the tenant, likewise

  Returns 1 put, 0 no such record, -1 ended or the attempt is over, -2 too many files, -3 too many bytes,
          -4 too many bytes of the family, -5 too many bytes of the tenant, {-6, quota, limit, used} the tenant's storage quota has no room.
]]
--- @include "./log.lua"

local record, files, contents = KEYS[1], KEYS[2], KEYS[3]
local name, content, info, epoch = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local status, current, bytes, id = unpack(redis.call('HMGET', record, 'status', 'epoch', 'fileBytes', 'id'))
if not status then
  return 0
end
-- A client may put files until the invocation ends; an attempt may put them only while it runs.
if status ~= 'running' and ((status ~= 'queued' and status ~= 'waiting') or epoch ~= '') then
  return -1
end
if epoch ~= '' and epoch ~= current then
  return -1
end
local before = redis.call('HSTRLEN', contents, name)
local total = tonumber(bytes or 0) - before + #content
local added = #name + #info + #content
if redis.call('HEXISTS', files, name) == 1 then
  added = #info - redis.call('HSTRLEN', files, name) + #content - before
elseif redis.call('HLEN', files) >= tonumber(ARGV[7]) then
  return -2
end
if total > tonumber(ARGV[8]) then
  return -3
end
local family = familyOf(record, redis.call('HGET', record, 'rootKey'))
if tonumber(redis.call('HGET', family, 'familyFileBytes') or 0) + added > tonumber(ARGV[9]) then
  return -4
end
forgetFiles(record, tonumber(ARGV[6]))
if fileUsage(record) + added > tonumber(ARGV[10]) then
  return -5
end
local account, storedUsage, usage, expiries = unpack(redis.call('HMGET', record, 'account', 'storedUsageKey', 'fileUsageKey',
  'fileExpiriesKey'))
local refusal = account and storageRefusal(account, storedUsage, usage, expiries, added, tonumber(ARGV[6]))
if refusal then
  return {-6, unpack(refusal)}
end
redis.call('HSET', contents, name, content)
redis.call('HSET', files, name, info)
redis.call('HSET', record, 'fileBytes', total, 'filesKey', files, 'fileContentsKey', contents)
redis.call('HINCRBY', family, 'familyFileBytes', added)
addFileUsage(record, id, added)
redis.call('PUBLISH', ARGV[1], 'file')
return 1

--- @script "file-get"
--[[
  Returns one file of an invocation.

  KEYS[1] files (hash): name to JSON
  KEYS[2] contents (hash): name to bytes

  ARGV[1] name

  Returns {JSON text, content}, or {} when there is no such file.
]]
local info, content = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1])
return info and content and {info, content} or {}

--- @script "file-look"
--[[
  Checks if a file of an invocation exists or may still come.

  KEYS[1] record (hash)
  KEYS[2] files (hash): name to JSON

  ARGV[1] name

  Returns 1 exists, 0 not yet, -1 does not exist and cannot come: the client has closed the session, or the invocation has ended (or is
  unknown).
]]
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
  return 1
end
local status, closed = unpack(redis.call('HMGET', KEYS[1], 'status', 'inboxClosed'))
return (status == 'queued' or status == 'running' or status == 'waiting') and not closed and 0 or -1
