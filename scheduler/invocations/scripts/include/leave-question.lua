-- Ends an invocation's wait for a person: a person answered, the time has passed, or the invocation ends. `record` has the record's fields.
local function leaveQuestion(record)
  redis.call('ZREM', record.questionsKey, record.id)
  redis.call('SREM', record.tenantQuestionsKey, record.id)
end
