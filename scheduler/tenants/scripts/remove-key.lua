--[[
  Removes a key. Of a call that is sent twice the second only answers.

  KEYS[1] keys of the tenant (hash, id to sha256)
  KEYS[2] record of the key (hash)
  KEYS[3] reply to this call (string)

  ARGV[1..3] see include/room.lua
  ARGV[4] id
  ARGV[5] '1': not the last key that works and administers the tenant
  ARGV[6] how long the reply is remembered, ms

  Returns 1 removed, 0 there is no such key, -1 it is that last one.
]]
--- @include "../../store/scripts/even-when-full.lua"
--- @include "./include/room.lua"

local function administers(record)
  local scopes = ' ' .. (redis.call('HGET', record, 'scopes') or '') .. ' '
  return works(record) and (scopes:find(' admin ', 1, true) or scopes:find(' operator ', 1, true)) and true or false
end

local function is_last()
  if not administers(KEYS[2]) then
    return false
  end
  for _, sha256 in ipairs(redis.call('HVALS', KEYS[1])) do
    local record = record_of(sha256)
    if record ~= KEYS[2] and administers(record) then
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
if ARGV[5] == '1' and is_last() then
  return -1
end
redis.call('HDEL', KEYS[1], ARGV[4])
redis.call('SET', KEYS[3], '1', 'PX', ARGV[6])
return redis.call('DEL', KEYS[2])
