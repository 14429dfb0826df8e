--[[
  Reads what a tenant holds now.

  KEYS[1] its queue: invocations that wait for their turn (sorted set)
  KEYS[2..4] usage of its stored values, usage and expiries of its files
  KEYS[5] its admitted use (hash): `held:<model>` expected KV pages; `held:#memory` is memory and is not counted
  KEYS[6] its waiting debounced invocations (hash)
  KEYS[7] its invocations that wait for a person (set)

  ARGV[1] prefix of the keys of its quotas
  ARGV[2] now, ms
  ARGV[3] function, or '' for none

  Returns {open invocations, those of the function, waiting invocations, bytes stored, KV pages, bytes in Redis, bytes on disk, open
  invocations with latency targets}.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/storage.lua"
--- @include "./include/waiting-count.lua"

local open, one = unpack(redis.call('HMGET', ARGV[1] .. ':open', '*', ARGV[3]))
local pages = 0
local admitted = redis.call('HGETALL', KEYS[5])
for i = 1, #admitted, 2 do
  if string.sub(admitted[i], 1, 5) == 'held:' and admitted[i] ~= 'held:#memory' then
    pages = pages + tonumber(admitted[i + 1])
  end
end
return {tonumber(open or 0), tonumber(one or 0), countWaiting(KEYS[1], KEYS[6], KEYS[7]),
  storedBytes(ARGV[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[2])), pages, settledBytes(ARGV[1], tonumber(ARGV[2])),
  diskBytes(ARGV[1]), redis.call('SCARD', ARGV[1] .. ':latency')}
