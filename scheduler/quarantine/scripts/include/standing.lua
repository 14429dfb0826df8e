-- The standing of a function version with a tenant: 'clear', 'suspect' or 'quarantined', as `standingOf` of ../../policy.ts computes it.
-- `conduct` is the key of the version's hash (tenant to JSON text), or nil for records from before that hash existed.
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
