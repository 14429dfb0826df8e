--- @include "./bytes-limit.lua"

-- A tenant's stored content counts as one number: its stored values, the files of its invocations, and the versions of its functions (each
-- one's record with manifest, and its whole component, even when two versions share it). The hash `<account>:components` counts the
-- versions: `bytes` in all, and by `<function>@<version>`.

local function storedBytes(account, storedUsage, fileUsage, fileExpiries, now)
  forgetFilesOf(account, fileUsage, fileExpiries, now)
  return tonumber(redis.call('HGET', storedUsage, 'bytes') or 0) + tonumber(redis.call('HGET', fileUsage, 'bytes') or 0)
    + tonumber(redis.call('HGET', account .. ':components', 'bytes') or 0)
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

-- Bytes of the tenant's compiled versions: the hash `<account>:disk` has `bytes` in all, and by `<function>@<version>`.
local function diskBytes(account)
  return tonumber(redis.call('HGET', account .. ':disk', 'bytes') or 0)
end

-- nil when the tenant's versions may take `added` more bytes on disk, else {quota, limit, used}.
local function diskRefusal(account, added, now)
  local limit = added > 0 and quotaLimit(account, 'disk-bytes', '', now)
  local used = limit and diskBytes(account)
  return limit and used + added > limit and {'disk-bytes', limit, used} or nil
end

local function countComponent(account, version, bytes, onDisk)
  if onDisk > 0 and redis.call('HSETNX', account .. ':disk', version, onDisk) == 1 then
    redis.call('HINCRBY', account .. ':disk', 'bytes', onDisk)
  end
  if redis.call('HSETNX', account .. ':components', version, bytes) == 1 then
    redis.call('HINCRBY', account .. ':components', 'bytes', bytes)
    changeBytes(account, bytes)
  end
end

local function uncountComponent(account, version)
  local onDisk = redis.call('HGET', account .. ':disk', version)
  if onDisk then
    redis.call('HDEL', account .. ':disk', version)
    redis.call('HINCRBY', account .. ':disk', 'bytes', -tonumber(onDisk))
  end
  local bytes = redis.call('HGET', account .. ':components', version)
  if bytes then
    redis.call('HDEL', account .. ':components', version)
    redis.call('HINCRBY', account .. ':components', 'bytes', -tonumber(bytes))
    changeBytes(account, -tonumber(bytes))
  end
end
