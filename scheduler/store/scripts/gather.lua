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
local commands, known, sums, expiries = {}, {}, {}, {}

-- Gathers arguments of a command that takes any number of them after its key.
function gather(command, key, ...)
  local name = command .. ' ' .. key
  local gathered = known[name]
  if not gathered then
    gathered = { command, key }
    known[name] = gathered
    commands[#commands + 1] = gathered
  end
  for _, value in ipairs({ ... }) do
    gathered[#gathered + 1] = value
  end
end

-- Adds to a field of a hash of numbers.
function addLater(key, field, n)
  sums[key] = sums[key] or {}
  sums[key][field] = (sums[key][field] or 0) + n
end

function gatheredSum(key, field)
  return sums[key] and sums[key][field] or 0
end

function expireLater(key, ms)
  expiries[key] = ms
end

function runGathered()
  for key, fields in pairs(sums) do
    for field, n in pairs(fields) do
      if n ~= 0 then
        isolated(redis.call, 'HINCRBY', key, field, string.format('%.0f', n))
      end
    end
  end
  for _, command in ipairs(commands) do
    isolated(redis.call, unpack(command))
  end
  for key, ms in pairs(expiries) do
    isolated(redis.call, 'PEXPIRE', key, ms)
  end
  commands, known, sums, expiries = {}, {}, {}, {}
end
end
