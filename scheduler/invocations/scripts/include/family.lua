-- What an invocation and all others of its root leave behind is counted in one record, the root's. A child's record says which that is.
local function familyOf(record)
  local root = redis.call('HGET', record, 'rootKey')
  return root and redis.call('EXISTS', root) == 1 and root or record
end

-- An event that is stored costs more than its data.
local EVENT_BYTES = 64
