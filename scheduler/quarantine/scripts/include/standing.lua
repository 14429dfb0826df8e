-- The standing of a function version for a tenant: 'clear', 'suspect' or 'quarantined'. `standingOf` in ../../policy.ts computes the same.
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
