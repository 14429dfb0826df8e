--[[
  Runs a command of a restore while the restore holds its lease. The check and the command are one step, so that a restore that stood still for
  longer than its lease changes nothing after another one has begun. The command must be the only write of this script: at its memory limit, Redis
  refuses only the first write of a script, and it must refuse the command.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  KEYS[2] the mark: id of the last restore that began to change the platform (string)
  ARGV[1] id of the restore
  ARGV[2..] the command

  Returns 1 when the command has run, 0 when the restore has lost its lease (see renew-restore.lua).
]]
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] and (holder or redis.call('GET', KEYS[2]) ~= ARGV[1]) then
  return 0
end
redis.call(unpack(ARGV, 2))
return 1
