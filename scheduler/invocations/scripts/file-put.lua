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
--- @include "./include/family.lua"
--- @include "./include/file-usage.lua"
--- @include "../../quotas/scripts/include/storage.lua"

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
