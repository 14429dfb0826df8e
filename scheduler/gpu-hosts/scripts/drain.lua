--[[
  Drains a GPU host: nothing new is placed there. By its name, which the runtimes that live tell of.

  KEYS[1] drained hosts (hash)
  KEYS[2] registered runtimes (hash)
  KEYS[3] channel of changes
  ARGV[1] what every key begins with
  ARGV[2] name of the host
  ARGV[3] '1': also when no other one would be left that is there and not drained
  ARGV[4] what is written down of it, as JSON text

  Returns 1 drained, 2 it was before, 0 no runtime knows it, -1 it is the last one.
]]
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return 2
end
local known, left = false, false
local runtimes = redis.call('HGETALL', KEYS[2])
for i = 1, #runtimes, 2 do
  if redis.call('EXISTS', ARGV[1] .. ':runtime:' .. runtimes[i] .. ':alive') == 1 then
    for _, host in ipairs(cjson.decode(runtimes[i + 1]).gpuHosts or {}) do
      if host.name == ARGV[2] then
        known = true
      elseif host.connected and redis.call('HEXISTS', KEYS[1], host.name) == 0 then
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
return 1
