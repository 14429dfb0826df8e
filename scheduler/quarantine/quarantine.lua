-- The conduct and the standing of versions.

-- The standing of a function version for a tenant: 'clear', 'suspect' or 'quarantined'. `standingOf` in policy.ts computes the same.
-- `conduct` is the key of the version's hash (tenant to JSON text), or nil when the invocation's record names no such key.
local function standingOf(conduct, tenant, now)
  local text = conduct and redis.call('HGET', conduct, tenant)
  if not text then
    return 'clear'
  end
  local known = cjson.decode(text)
  if known.quarantinedAt then
    return 'quarantined'
  end
  return now < known.suspectUntil and 'suspect' or 'clear'
end

--- @script "change-conduct"
--[[
  Stores a tenant's conduct of a function version (the losses of its sandboxes), unless another process has changed the conduct since this process
  read it. Also deletes expired conduct of all tenants.

  KEYS[1] conduct of the version (hash, tenant to JSON text)
  KEYS[2] the reply to this call, see ../store/store.lua

  ARGV[1] tenant
  ARGV[2] the text that was read, '' for none
  ARGV[3] the new text, '' for none
  ARGV[4] now, ms

  Returns 1 when the conduct is stored, 0 when another process has changed it: read it again.
]]
--- @include "../store/even-when-full.lua"
--- @include "../store/store.lua"
local conduct, tenant, now = KEYS[1], ARGV[1], tonumber(ARGV[4])
local answered = answeredBefore(KEYS[2])
if answered then
  return answered
end
if (redis.call('HGET', conduct, tenant) or '') ~= ARGV[2] then
  return 0
end
if ARGV[3] == '' then
  redis.call('HDEL', conduct, tenant)
else
  redis.call('HSET', conduct, tenant, ARGV[3])
end
-- A hash with a quarantine must not expire: a quarantine lasts until it is lifted or the version is deleted.
local holds, latest = false, 0
local all = redis.call('HGETALL', conduct)
for i = 1, #all, 2 do
  local known = cjson.decode(all[i + 1])
  if known.quarantinedAt then
    holds = true
  elseif known.suspectUntil <= now then
    redis.call('HDEL', conduct, all[i])
  else
    latest = math.max(latest, known.suspectUntil)
  end
end
if holds then
  redis.call('PERSIST', conduct)
else
  redis.call('PEXPIRE', conduct, math.max(1, math.ceil(latest - now)))
end
return answerOnce(KEYS[2], 1)
