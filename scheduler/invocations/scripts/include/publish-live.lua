-- Publishes events of an invocation: on its live channel, and on the channel of the process that submitted it, if that follows it.
local function publishLive(live, submitter, id, payload)
  redis.call('PUBLISH', live, payload)
  if submitter then
    redis.call('PUBLISH', submitter, id .. '\0' .. payload)
  end
end
