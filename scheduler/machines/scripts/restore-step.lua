--[[
  Runs one Redis command of a restore, but only while the restore has its lease. The check and the command are one atomic step. A restore that
  stood still for longer than its lease therefore changes nothing after another restore has begun.

  The command must be the first and only write of this script. Redis at its memory limit refuses a script only at the first write, so a write before
  the command would let the command pass the limit.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  KEYS[2] the mark: id of the last restore that began to change the platform (string)
  ARGV[1] id of the restore
  ARGV[2..] the command and its arguments

  Returns 1 when the command has run, 0 when the restore has lost its lease and may not go on.
]]
local holder = redis.call('GET', KEYS[1])
-- When no restore holds the lease, the restore whose mark is still set may go on, because no other restore has changed anything. Its next renewal
-- takes the lease again (see renew-restore.lua).
if holder ~= ARGV[1] and (holder or redis.call('GET', KEYS[2]) ~= ARGV[1]) then
  return 0
end
redis.call(unpack(ARGV, 2))
return 1
