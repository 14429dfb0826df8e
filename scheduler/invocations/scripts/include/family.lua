--- @include "../../../quotas/scripts/include/account.lua"

-- The root's record counts the bytes of the root and all its descendants; a child's record holds the root's key.
-- Returns the key of that record and the bytes. `root` and `own` are the fields `rootKey` and `familyBytes` of `record`, the invocation's
-- record. When the root's record is gone, the invocation counts its bytes in `record`.
local function familyOf(record, root, own)
  if root and redis.call('EXISTS', root) == 1 then
    return root, tonumber(redis.call('HGET', root, 'familyBytes') or 0)
  end
  return record, tonumber(own or 0)
end
