-- The first arguments of every script that may end an invocation:
-- ARGV[1] id, [2] live channel, [3] inbox channel, [4] now, [5] record kept for, [6] events kept for, [7] lines of the function's log,
-- [8] function's log, files and result kept for, separated by spaces (times in ms).
local function endArguments()
  local logMs, filesMs, resultsMs = string.match(ARGV[8], '^(%d+) (%d+) (%d+)$')
  return {
    id = ARGV[1],
    live = ARGV[2],
    inboxChannel = ARGV[3],
    now = ARGV[4],
    recordMs = ARGV[5],
    eventsMs = ARGV[6],
    logLines = ARGV[7],
    logMs = logMs,
    filesMs = filesMs,
    resultsMs = resultsMs,
    usage = '',
    code = '',
    message = '',
  }
end
