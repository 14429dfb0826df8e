-- Helpers of every script, and the count of unended runs of a job.

-- Commands that a script makes for many invocations, gathered by key, so that one command changes a key for all of them. The script's own
-- reads do not see gathered changes before `runGathered`, except through `gatheredSum`.
local gather, addLater, expireLater, gatheredSum, runGathered

-- Runs a step that several invocations share. A failure, such as a damaged key of one tenant, only goes to the log of Redis: the invocations'
-- own writes are done already, and the steps of other tenants must still run.
local function isolated(step, ...)
  local ok, raised = pcall(step, ...)
  if not ok then
    redis.log(redis.LOG_WARNING, 'pie: ' .. (type(raised) == 'table' and raised.err or tostring(raised)))
  end
end

do
-- `commands`: lists of a command, its key and its arguments, in the order of their first use. `known`: the same lists by command and key. `sums`:
-- additions by key and field. `expiries`: lifetimes by key, ms.
local later = { commands = {}, known = {}, sums = {}, expiries = {} }

-- Gathers arguments of a command that takes any number of them after its key.
function gather(command, key, ...)
  local name = command .. ' ' .. key
  local gathered = later.known[name]
  if not gathered then
    gathered = { command, key }
    later.known[name] = gathered
    later.commands[#later.commands + 1] = gathered
  end
  for _, value in ipairs({ ... }) do
    gathered[#gathered + 1] = value
  end
end

-- Adds to a field of a hash of numbers.
function addLater(key, field, n)
  later.sums[key] = later.sums[key] or {}
  later.sums[key][field] = (later.sums[key][field] or 0) + n
end

function gatheredSum(key, field)
  return later.sums[key] and later.sums[key][field] or 0
end

function expireLater(key, ms)
  later.expiries[key] = ms
end

function runGathered()
  for key, fields in pairs(later.sums) do
    for field, n in pairs(fields) do
      if n ~= 0 then
        isolated(redis.call, 'HINCRBY', key, field, string.format('%.0f', n))
      end
    end
  end
  for _, command in ipairs(later.commands) do
    isolated(redis.call, unpack(command))
  end
  for key, ms in pairs(later.expiries) do
    isolated(redis.call, 'PEXPIRE', key, ms)
  end
  later = { commands = {}, known = {}, sums = {}, expiries = {} }
end
end

-- A call is sent twice when its first answer was lost with the connection. The second call gets the first one's answer and changes nothing,
-- so it cannot undo changes that other calls made in between. `key` is unique to the call.
local function answeredBefore(key)
  local text = redis.call('GET', key)
  return text and cjson.decode(text)
end

local REMEMBERED_MS = 60000

local function answerOnce(key, answer)
  redis.call('SET', key, cjson.encode(answer), 'PX', REMEMBERED_MS)
  return answer
end

--- @script "begin-run"
--[[
  Counts the begin of a run of a job, unless too many runs in a row began and did not end. The end of a run deletes the count.

  KEYS[1] runs of the job that did not end (string)

  ARGV[1] number of such runs at which no further one begins
  ARGV[2] time for which the count is kept, ms

  Returns the number before this call. The run has begun if it is below ARGV[1].
]]
--- @include "./even-when-full.lua"
local unended = tonumber(redis.call('GET', KEYS[1]) or '0')
if unended < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], unended + 1, 'PX', ARGV[2])
end
return unended
