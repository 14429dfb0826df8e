-- The mark of a restore, during which no machine starts.

--- @script "begin-restore"
--[[
  Takes the lease of restores. While the lease holds, no supervisor can claim a machine. Running machines go on: the restore has changed nothing
  yet, and is refused when it finds running machines.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  ARGV[1] id of the restore
  ARGV[2] how long the lease holds, ms

  Returns false when this restore has the lease, else the id of the restore that has it.
]]
--- @include "../store/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false

--- @script "renew-restore"
--[[
  Renews the lease of a restore, and sets the mark when the restore begins to change the platform. The mark stays when the restore dies. No
  supervisor can then claim a machine until another restore has ended well.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  KEYS[2] the mark: id of the last restore that began to change the platform (string)
  ARGV[1] id of the restore
  ARGV[2] how long the lease holds, ms
  ARGV[3] '1': set the mark

  Returns 1 when the lease is renewed, 0 when the restore has lost it. A restore whose mark is still set gets its lease back after it has run out,
  unless another restore holds the lease: no machine has started meanwhile, and no other restore has changed anything.
]]
--- @include "../store/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] and (holder or redis.call('GET', KEYS[2]) ~= ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if ARGV[3] == '1' then
  redis.call('SET', KEYS[2], ARGV[1])
end
return 1

--- @script "restore-step"
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
-- takes the lease again (see `renew-restore`).
if holder ~= ARGV[1] and (holder or redis.call('GET', KEYS[2]) ~= ARGV[1]) then
  return 0
end
redis.call(unpack(ARGV, 2))
return 1

--- @script "end-restore"
--[[
  Ends the lease of a restore, which may have run out already. Removes the mark of this restore when the platform is complete. The lease and the
  mark of another restore stay.

  KEYS[1] the lease: id of the restore that holds it (string with a TTL)
  KEYS[2] the mark: id of the last restore that began to change the platform (string)
  ARGV[1] id of the restore
  ARGV[2] '1': the platform is complete (fully restored, or fully removed)

  Returns 0 when another restore holds the lease, else 1.
]]
--- @include "../store/even-when-full.lua"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[2] == '1' and redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('DEL', KEYS[2])
end
return 1
