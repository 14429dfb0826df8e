-- Publishes events of an invocation: on its live channel, and on the channel `submitter` of the process that submitted and follows it, if any.
local function publishLive(live, submitter, id, payload)
  redis.call('PUBLISH', live, payload)
  if submitter then
    redis.call('PUBLISH', submitter, id .. '\0' .. payload)
  end
end
