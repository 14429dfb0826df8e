-- The turns of tenants to build.

--- @script "take-turn"
--[[
  Gives a new build its turn; `nextTurn` of testing/build-turns.ts computes the same. A repeated call gets the same turn.

  KEYS[1] turns (hash). Its fields:
          <id of a build>: `<tenant> <turn> <deadline, ms>`, for each unfinished build
          began <tenant>: the same, for the last build of the tenant that has begun
          time: the largest turn that has begun

  ARGV[1] id
  ARGV[2] tenant
  ARGV[3] now, ms
  ARGV[4] deadline: the time up to which the requester waits for the build, ms
  ARGV[5] maximum unfinished builds of a tenant

  Returns the turn, or -1 when the tenant has as many unfinished builds as it may have.
]]
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then
  return tonumber(string.match(known, '^%S+ (%d+)'))
end
local fields = redis.call('HGETALL', KEYS[1])
local turn, waiting, own, time = 0, false, 0, tonumber(redis.call('HGET', KEYS[1], 'time') or 0)
for i = 1, #fields, 2 do
  if fields[i] ~= 'time' then
    local tenant, other, deadline = string.match(fields[i + 1], '^(%S+) (%d+) (%d+)$')
    local began = string.sub(fields[i], 1, 6) == 'began '
    -- A field with a past deadline is left over, for example from a gateway that died before it removed the turn. The last build of a tenant
    -- does not matter once `time` is past its turn: every new build gets at least the turn `time`.
    if tonumber(deadline) < tonumber(ARGV[3]) or began and tonumber(other) < time then
      redis.call('HDEL', KEYS[1], fields[i])
    else
      if tenant == ARGV[2] then
        turn = math.max(turn, tonumber(other) + 1)
      end
      if not began then
        waiting = true
        own = own + (tenant == ARGV[2] and 1 or 0)
      end
    end
  end
end
-- Turns restart when no build waits or runs, so that they stay small.
if not waiting then
  redis.call('DEL', KEYS[1])
  turn, time = 0, 0
end
if own >= tonumber(ARGV[5]) then
  return -1
end
turn = math.max(turn, time)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. turn .. ' ' .. ARGV[4])
return turn

--- @script "begin-turn"
--[[
  Records that a build has begun. Later requests then get at least the turn of this build. Later requests of the same tenant get a later turn
  than this build, even after the build has ended, until its deadline.

  KEYS[1] turns (hash), see `take-turn`

  ARGV[1] id

  Returns 1, or 0 when the requester no longer waits for that build.
]]
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known then
  return 0
end
local tenant, turn = string.match(known, '^(%S+) (%d+)')
if tonumber(turn) >= tonumber(redis.call('HGET', KEYS[1], 'time') or 0) then
  redis.call('HSET', KEYS[1], 'time', turn, 'began ' .. tenant, known)
end
return 1

--- @script "give-up-builds"
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
