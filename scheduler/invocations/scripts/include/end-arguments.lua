-- The retention of an ended invocation, from the arguments of a script that may end invocations: `record` and `events` in ms; `lines`, the
-- maximum number of lines of the function's log; `times`, the retention of that log, of files and of the result, in ms, separated by spaces.
local function keptFor(now, record, events, lines, times)
  local logMs, filesMs, resultsMs = string.match(times, '^(%d+) (%d+) (%d+)$')
  return {
    now = now,
    recordMs = record,
    eventsMs = events,
    logLines = lines,
    logMs = logMs,
    filesMs = filesMs,
    resultsMs = resultsMs,
    usage = '',
    code = '',
    message = '',
  }
end

-- The first keys and arguments of every script that may end one invocation:
-- KEYS[1] record, [2] events, [3] inbox, [4] deadlines.
-- ARGV[1] id, [2] live channel, [3] inbox channel, [4] now, [5..8] see `keptFor`.
local function endArguments()
  local a = keptFor(ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8])
  a.record, a.events, a.inbox, a.deadlines = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
  a.id, a.live, a.inboxChannel = ARGV[1], ARGV[2], ARGV[3]
  return a
end
