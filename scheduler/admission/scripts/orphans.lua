--[[
  Searches for active jobs and children whose runtime is not registered: the runtime took them after it was declared dead. Also searches for
  children whose runtime is registered, but whose parent's attempt is over: the recovery of that runtime broke off, and it has registered again.

  KEYS[1] BullMQ active (list)
  KEYS[2] children that have not ended (hash), id to runtime
  KEYS[3] registered runtimes (hash)
  KEYS[4] times of the reapers' searches (hash): `orphansAt`, the last search by this script, ms by the clock of Redis
  ARGV[1] prefix of the keys of jobs
  ARGV[2] least time between two searches, ms
  ARGV[3] prefix of the keys of invocations' records

  Returns {{job, runtime, token of its fetch or '', ...}, {child, runtime, ...}}, or nothing when the last search was less than ARGV[2] ago.
]]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('HGET', KEYS[4], 'orphansAt') or 0)
if last <= now and now - last < tonumber(ARGV[2]) then
  return false
end
-- A full Redis refuses the write; then every caller searches.
redis.pcall('HSET', KEYS[4], 'orphansAt', now)

-- Maximum number of children whose parents one call reads, since Redis serves no other client meanwhile. The call chooses them at random.
local MOST_PARENTS = 1000

local registered = {}
for _, id in ipairs(redis.call('HKEYS', KEYS[3])) do
  registered[id] = true
end
local jobs, children = {}, {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local holder = redis.call('HGET', ARGV[1] .. id, 'pb')
  if holder and not registered[holder] then
    jobs[#jobs + 1] = id
    jobs[#jobs + 1] = holder
    jobs[#jobs + 1] = redis.call('GET', ARGV[1] .. id .. ':lock') or ''
  end
end
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  if not registered[all[i + 1]] then
    children[#children + 1] = all[i]
    children[#children + 1] = all[i + 1]
  end
end
-- True when the attempt that launched a child still runs. A damaged record counts as one without fields.
local function isParentRunning(child)
  local parent, attempt = unpack(redis.pcall('HMGET', ARGV[3] .. child, 'parent', 'parentEpoch'))
  local status, epoch = unpack(parent and redis.pcall('HMGET', ARGV[3] .. parent, 'status', 'epoch') or {})
  return status == 'running' and epoch == attempt
end
local some = redis.call('HRANDFIELD', KEYS[2], MOST_PARENTS, 'WITHVALUES')
for i = 1, #some, 2 do
  if registered[some[i + 1]] and not isParentRunning(some[i]) then
    children[#children + 1] = some[i]
    children[#children + 1] = some[i + 1]
  end
end
return { jobs, children }
