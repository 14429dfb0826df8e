-- Ends the wait of a debounced invocation: its delay has passed, or the invocation ends. `record` has the record's fields.
local function leaveDebounce(record)
  redis.call('ZREM', record.prefix .. ':debounced', record.id)
  local id = string.match(redis.call('HGET', record.debounceKey, record.debounceField) or '', '^%S+')
  if id == record.id then
    redis.call('HDEL', record.debounceKey, record.debounceField)
  end
end
