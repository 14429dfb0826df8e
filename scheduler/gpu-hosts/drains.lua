-- The GPU hosts and machines that an operator drains.

--- @script "drain"
--[[
  Drains a GPU host, by the name that living runtimes report for it: it takes no new invocations.

  KEYS[1] drained hosts and machines (hash)
  KEYS[2] registered runtimes (hash)
  KEYS[3] channel of changes
  KEYS[4] the reply to this call, see ../store/store.lua
  ARGV[1] prefix of every key
  ARGV[2] name of the host
  ARGV[3] '1': drain it even when no other connected host would be left undrained
  ARGV[4] note on the drain, as JSON text
  ARGV[5] the text before the name in the entry of any machine

  Returns 1 drained, 2 it was drained already, 0 no living runtime knows the host, -1 no other connected host would be left undrained.
]]
--- @include "../store/store.lua"
local answered = answeredBefore(KEYS[4])
if answered then
  return answered
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return 2
end
local known, left = false, false
local runtimes = redis.call('HGETALL', KEYS[2])
for i = 1, #runtimes, 2 do
  if redis.call('EXISTS', ARGV[1] .. ':runtime:' .. runtimes[i] .. ':alive') == 1 then
    local runtime = cjson.decode(runtimes[i + 1])
    -- The runtimes of a drained machine take no invocations, so a host that only they reach is not left.
    local isDrained = redis.call('HEXISTS', KEYS[1], ARGV[5] .. (runtime.machine or '')) == 1
    for _, host in ipairs(runtime.gpuHosts or {}) do
      if host.name == ARGV[2] then
        known = true
      elseif host.connected and not isDrained and redis.call('HEXISTS', KEYS[1], host.name) == 0 then
        left = true
      end
    end
  end
end
if not known then
  return 0
end
if not left and ARGV[3] ~= '1' then
  return -1
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
redis.call('PUBLISH', KEYS[3], ARGV[2])
return answerOnce(KEYS[4], 1)

--- @script "drain-machine"
--[[
  Drains a machine: its runtimes and its GPU hosts take no new invocations.

  KEYS[1] drained hosts and machines (hash)
  KEYS[2] registered runtimes (hash)
  KEYS[3] channel of changes
  KEYS[4] the reply to this call, see ../store/store.lua
  ARGV[1] prefix of every key
  ARGV[2] name of the machine
  ARGV[3] the machine's entry among the drained hosts and machines
  ARGV[4] '1': drain it even when no other runtime or no other connected GPU host would be left undrained
  ARGV[5] note on the drain, as JSON text
  ARGV[6…] names of the machine's GPU hosts

  Returns 1 drained, 2 it was drained already, -1 no other runtime with a GPU host would be left undrained.
]]
--- @include "../store/store.lua"
local answered = answeredBefore(KEYS[4])
if answered then
  return answered
end
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then
  return 2
end
local own = {}
for i = 6, #ARGV do
  own[ARGV[i]] = true
end
-- The text before the name in the entry of any machine.
local entryPrefix = string.sub(ARGV[3], 1, #ARGV[3] - #ARGV[2])
local isHostLeft, hasRuntime = false, false
local runtimes = redis.call('HGETALL', KEYS[2])
for i = 1, #runtimes, 2 do
  if redis.call('EXISTS', ARGV[1] .. ':runtime:' .. runtimes[i] .. ':alive') == 1 then
    local runtime = cjson.decode(runtimes[i + 1])
    local machine = runtime.machine or ''
    if machine == ARGV[2] then
      hasRuntime = true
    elseif redis.call('HEXISTS', KEYS[1], entryPrefix .. machine) == 0 then
      for _, host in ipairs(runtime.gpuHosts or {}) do
        if host.connected and not own[host.name] and redis.call('HEXISTS', KEYS[1], host.name) == 0 then
          isHostLeft = true
        end
      end
    end
  end
end
-- A GPU host is left only if the runtime of another, undrained machine reaches it. A machine without a runtime and without
-- GPU hosts may always drain.
if not isHostLeft and (hasRuntime or #ARGV >= 6) and ARGV[4] ~= '1' then
  return -1
end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[5])
for i = 6, #ARGV do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[5])
end
redis.call('PUBLISH', KEYS[3], ARGV[2])
return answerOnce(KEYS[4], 1)

--- @script "undrain"
--[[
  Ends the drain of a GPU host or a machine, which then takes new invocations again.

  KEYS[1] drained hosts and machines (hash)
  KEYS[2] channel of changes
  KEYS[3] the reply to this call, see ../store/store.lua
  ARGV[1] name of the host, or entry of the machine

  Returns 1 when it was drained, else 0.
]]
--- @include "../store/store.lua"
local answered = answeredBefore(KEYS[3])
if answered then
  return answered
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('PUBLISH', KEYS[2], ARGV[1])
return answerOnce(KEYS[3], 1)
