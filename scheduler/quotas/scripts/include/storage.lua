-- After limits.lua and forget-files.lua of the invocations. What a tenant stores counts as one number: its stored values, the files of its
-- invocations, and the versions of its functions (each one's record, manifest included, and whole component, also when two have the same). The
-- last are counted in the hash `<account>:components`: `bytes` in all, and by `<function>@<version>`.

-- Bytes that the tenant stores.
local function storedBytes(account, storedUsage, fileUsage, fileExpiries, now)
  forgetFilesOf(fileUsage, fileExpiries, now)
  return tonumber(redis.call('HGET', storedUsage, 'bytes') or 0) + tonumber(redis.call('HGET', fileUsage, 'bytes') or 0)
    + tonumber(redis.call('HGET', account .. ':components', 'bytes') or 0)
end

-- nil when the tenant may store so many bytes more, else the limit and what is used.
local function storageRefusal(account, storedUsage, fileUsage, fileExpiries, added, now)
  local limit = added > 0 and quotaLimit(account, 'storage-bytes', '', now)
  if not limit then
    return nil
  end
  local used = storedBytes(account, storedUsage, fileUsage, fileExpiries, now)
  return used + added > limit and {limit, used} or nil
end

local function countComponent(account, version, bytes)
  if redis.call('HSETNX', account .. ':components', version, bytes) == 1 then
    redis.call('HINCRBY', account .. ':components', 'bytes', bytes)
  end
end

local function uncountComponent(account, version)
  local bytes = redis.call('HGET', account .. ':components', version)
  if bytes then
    redis.call('HDEL', account .. ':components', version)
    redis.call('HINCRBY', account .. ':components', 'bytes', -tonumber(bytes))
  end
end
