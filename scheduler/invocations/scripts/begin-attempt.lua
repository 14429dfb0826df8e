--[[
  Begins attempts. Only the begun attempt may write to its invocation until a newer epoch exists. A refused begin does not affect the others.

  KEYS[1] registered runtimes (hash)
  KEYS[2, 4, ...] records (hashes); KEYS[3, 5, ...] their BullMQ jobs (hashes)

  ARGV[1] now, ms
  ARGV[2] events past the log's last one that an attempt may show before it has written them
  ARGV[3...] for each record: runtime id; the runtime's cancels (hash); channel on which it hears of cancels; a token of this call, so that
    a command sent twice begins one attempt; token with which the runtime fetched the job, or '' for any; live channel, on which a message
    tells followers which runtime shows the events, or '' when it shows none

  Returns for each record
          {1, epoch, number of the attempt's first event, attempt, start of the wait for this attempt, `usageBefore` and `usageNow` of
          ../../usage/scripts/include/metering.lua or '', standing of its version (../../quarantine/scripts/include/standing.lua),
          attemptLimits of ../../quotas/scripts/include/exceeded.lua}
          {0, 'ended' | 'already-ran' | 'unknown'}
          {0, 'not-held'} when the runtime was declared dead or does not hold the job (any more); the invocation goes on elsewhere
          {-5, text of the error}
]]
--- @include "./include/begin-attempt.lua"

-- HEAD is the number of arguments before those of the first record, PER_ATTEMPT that of the arguments of each record.
local HEAD, PER_ATTEMPT = 2, 6

local replies = {}
for i = 1, (#KEYS - 1) / 2 do
  local at = HEAD + (i - 1) * PER_ATTEMPT
  local a = { record = KEYS[2 * i], job = KEYS[2 * i + 1], runtimes = KEYS[1], now = ARGV[1], ahead = ARGV[2] }
  a.runtimeId, a.cancels, a.cancelChannel, a.token, a.fetched, a.live = unpack(ARGV, at + 1, at + PER_ATTEMPT)
  local ok, reply = pcall(beginAttempt, a)
  replies[i] = ok and reply or {-5, type(reply) == 'table' and reply.err or tostring(reply)}
end
admitAfterBegins(ARGV[1])
return replies
