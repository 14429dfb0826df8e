--[[
  Ends the locks of the builds that a runtime holds, so that another runtime takes them over.

  KEYS[1] BullMQ active (list)
  ARGV[1] runtime that is lost, or stops
  ARGV[2] prefix of the keys of builds

  Returns the number of builds that the runtime held.
]]
local count = 0
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  -- `pb`: BullMQ's `processedBy`, the name of the worker that holds the job.
  if redis.call('HGET', ARGV[2] .. id, 'pb') == ARGV[1] then
    redis.call('DEL', ARGV[2] .. id .. ':lock')
    count = count + 1
  end
end
return count
