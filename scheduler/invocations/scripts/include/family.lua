--- @include "../../../quotas/scripts/include/account.lua"

-- What an invocation and all others of its root leave behind is counted in one record, the root's. A child's record says which that is.
-- Answers that record and the bytes; `root` and `own` are the `rootKey` and `familyBytes` of the invocation's own record.
local function familyOf(record, root, own)
  if root and redis.call('EXISTS', root) == 1 then
    return root, tonumber(redis.call('HGET', root, 'familyBytes') or 0)
  end
  return record, tonumber(own or 0)
end
