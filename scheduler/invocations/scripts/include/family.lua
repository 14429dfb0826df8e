--- @include "../../../quotas/scripts/include/account.lua"

-- Returns the key of the record that counts the bytes of an invocation's family, and these bytes. It is the record of the root, the topmost
-- ancestor; when that is gone, the invocation's own record counts. `record` is the invocation's record; `root` and `own` are its fields `rootKey`
-- (a root has none) and `familyBytes`.
local function familyOf(record, root, own)
  if root and redis.call('EXISTS', root) == 1 then
    return root, tonumber(redis.call('HGET', root, 'familyBytes') or 0)
  end
  return record, tonumber(own or 0)
end
