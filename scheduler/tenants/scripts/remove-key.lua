--[[
  Removes a key and records the act. A repeated call only returns the reply.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] record of the key (hash)
  KEYS[3] reply to this call (string)
  KEYS[4…7] see include/record-act.lua

  ARGV[1..3] see include/room.lua
  ARGV[4] id
  ARGV[5] ms: the script refuses to remove a key that administers the tenant unless another such key works for longer than this; '' removes
          any key
  ARGV[6] how long the reply is kept, ms
  ARGV[7…] the act, see include/record-act.lua

  Returns 1 removed, 0 there is no such key, -1 refused: no other key administers the tenant for long enough.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/room.lua"
--- @include "./include/record-act.lua"

local function administers(record, for_ms)
  local scopes = ' ' .. (redis.call('HGET', record, 'scopes') or '') .. ' '
  return works(record, for_ms) and (scopes:find(' admin ', 1, true) or scopes:find(' operator ', 1, true)) and true or false
end

local function is_last()
  if not administers(KEYS[2], 0) then
    return false
  end
  for _, sha256 in ipairs(redis.call('HVALS', KEYS[1])) do
    local record = record_of(sha256)
    if record ~= KEYS[2] and administers(record, tonumber(ARGV[5])) then
      return false
    end
  end
  return true
end

if redis.call('EXISTS', KEYS[3]) == 1 then
  return 1
end
if redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0 then
  return 0
end
-- Redis has dropped the record, some time after the key expired: the key no longer exists, and leaves the tenant's keys.
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[4])
  return 0
end
if ARGV[5] ~= '' and is_last() then
  return -1
end
redis.call('HDEL', KEYS[1], ARGV[4])
redis.call('SET', KEYS[3], '1', 'PX', ARGV[6])
record_act(4, { unpack(ARGV, 7) })
redis.call('DEL', KEYS[2])
return 1
