--[[
  Sends a message to every process with subscriptions of a topic. A repeated call only returns the reply.

  KEYS[1] topic (hash): channel of a process to `<subscriptions>:<generation>`
  KEYS[2] reply to this call (string)
  KEYS[3] record of the invocation that sends (hash)

  ARGV[1] id of the topic, a zero byte and the message
  ARGV[2] how long the reply is kept, ms
  ARGV[3] epoch of the attempt that sends, or '' for none

  Publishes `<generation>`, a zero byte and ARGV[1] to each process. The process delivers only to subscriptions up to this generation, because later
  ones were not counted.
  Returns the number of subscriptions reached, or -1 when the attempt is over.
]]
--- @include "../../invocations/scripts/include/attempt.lua"
local known = redis.call('GET', KEYS[2])
if known then
  return tonumber(known)
end
if not isCurrent(KEYS[3], ARGV[3]) then
  return -1
end
-- This write comes before the message is published: when a full Redis refuses the write, no subscriber must get the message.
redis.call('SET', KEYS[2], 0, 'PX', ARGV[2])
local reached = 0
local processes = redis.call('HGETALL', KEYS[1])
for i = 1, #processes, 2 do
  local count, generation = string.match(processes[i + 1], '^(%d+):(%d+)$')
  if redis.call('PUBLISH', processes[i], generation .. '\0' .. ARGV[1]) > 0 then
    reached = reached + tonumber(count)
  else
    -- Without a listener, the process has died, or is disconnected and registers again when it reconnects.
    redis.call('HDEL', KEYS[1], processes[i])
  end
end
redis.call('SET', KEYS[2], reached, 'PX', ARGV[2])
return reached
