--[[
  Removes a runtime from the registered runtimes, and what it offers from the platform's capacity.

  KEYS[1] registered runtimes (hash)
  KEYS[2] the runtime's alive key
  KEYS[3] its cancels (hash)
  KEYS[4] the reply to this call, see ../../store/scripts/once.lua
  KEYS[5] invocations whose jobs it holds (set)
  ARGV[1] runtime id
  ARGV[2] prefix of every key
  ARGV[3] now, ms
  ARGV[4] '1' to do nothing when the runtime's lease holds
  ARGV[5] prefix of the keys of jobs

  Returns {1 when the runtime was registered, else 0, job, token of its BullMQ lock or '', ...} with the jobs that the runtime holds; 0 when the lease
  holds and nothing was done.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "../../store/scripts/once.lua"
--- @include "../../admission/scripts/include/admission.lua"
local answered = answeredBefore(KEYS[4])
if answered then
  return answered
end
if ARGV[4] == '1' and redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
local wasRegistered = redis.call('HDEL', KEYS[1], ARGV[1])
local a = openAdmission(ARGV[2], ARGV[3])
countRuntime(a, ARGV[1], nil)
closeAdmission(a)
local jobs = { wasRegistered }
for _, id in ipairs(redis.call('SMEMBERS', KEYS[5])) do
  -- `pb`: BullMQ's `processedBy`, the runtime that holds the job.
  if redis.call('HGET', ARGV[5] .. id, 'pb') == ARGV[1] then
    jobs[#jobs + 1] = id
    jobs[#jobs + 1] = redis.call('GET', ARGV[5] .. id .. ':lock') or ''
  end
end
return answerOnce(KEYS[4], jobs)
