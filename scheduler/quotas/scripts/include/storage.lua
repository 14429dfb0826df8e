--- @include "./bytes-limit.lua"

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
