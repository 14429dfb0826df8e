-- How a version of a function stands with a tenant: 'clear', 'suspect' or 'quarantined', as `standingOf` of ../../policy.ts. `conduct` is the hash
-- of the version, tenant to JSON text; records from before there was one have none.
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
