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
