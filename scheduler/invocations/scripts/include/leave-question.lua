-- Ends the wait for a person: there is an answer, its time has passed, or the invocation ends. `record` has the record's fields.
local function leaveQuestion(record)
  redis.call('ZREM', record.questionsKey, record.id)
  redis.call('SREM', record.tenantQuestionsKey, record.id)
end
