-- The owners of exported memory, and the durable copies of it.

--- @script "claim"
--[[
  Notes the owner of a name. An owner that is noted already stays, unless it is ARGV[3]. Idempotent.

  KEYS[1] the tenant's names of a model (hash)

  ARGV[1] kind and name
  ARGV[2] the owner
  ARGV[3] the owner that may be replaced; empty for none

  Returns the other owner, which stays noted; nothing when ARGV[2] is noted now.
]]

local noted = redis.call('HGET', KEYS[1], ARGV[1])
if noted and noted ~= ARGV[2] and noted ~= ARGV[3] then return noted end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return false

--- @script "release"
--[[
  Forgets the owner of a name, if the owner is still the given one.

  KEYS[1] the tenant's names of a model (hash)

  ARGV[1] kind and name
  ARGV[2] the owner

  Returns 1 when the owner was removed, else 0.
]]
--- @include "../store/even-when-full.lua"

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1

--- @script "keep-copy"
--[[
  Records that the shared directory has a copy of the content of a name. Two conditions must hold: the owner's entry of the name is still
  the one that the caller has read, and the tenant's copies stay within their bounds.

  KEYS[1] the owners of the tenant's names of a model (hash)
  KEYS[2] the tenant's durable names: the records of copies, and other fields (hash)

  ARGV[1] kind and name
  ARGV[2] the owner's entry as the caller has read it
  ARGV[3] field of the copy
  ARGV[4] the copy (JSON)
  ARGV[5] bytes of the copy
  ARGV[6] maximum copies of the tenant
  ARGV[7] maximum bytes of all copies of the tenant together

  Returns one of three:
    {'changed'}: the name has another entry than ARGV[2], or none
    {'full', copies, bytes}: a bound would be exceeded; the numbers are those of the tenant's other copies
    {'kept', replaced}: the copy is recorded; `replaced` is the former record of this name's copy, or ''
]]

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'changed'} end
local copies, bytes, replaced = 0, 0, ''
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  if all[i] == ARGV[3] then
    replaced = all[i + 1]
  elseif string.sub(all[i], 1, 5) == 'copy/' then
    copies = copies + 1
    bytes = bytes + cjson.decode(all[i + 1]).bytes
  end
end
if copies + 1 > tonumber(ARGV[6]) or bytes + tonumber(ARGV[5]) > tonumber(ARGV[7]) then
  return {'full', copies, tostring(bytes)}
end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
return {'kept', replaced}

--- @script "remove-copy"
--[[
  Forgets a name and its copy in the shared directory, if both are still the given ones.

  KEYS[1] the tenant's names of a model (hash)
  KEYS[2] the tenant's durable names (hash)
  KEYS[3] the reply to this call, see ../store/store.lua

  ARGV[1] kind and name
  ARGV[2] the owner
  ARGV[3] field of the copy
  ARGV[4] the copy (JSON)
  ARGV[5] field of the removal: a note that the owner's host must forget the name when it is back; empty when no note is needed
  ARGV[6] the removal (JSON)

  Returns 1 when the name and its copy were removed, else 0.
]]
--- @include "../store/even-when-full.lua"
--- @include "../store/store.lua"

local answered = answeredBefore(KEYS[3])
if answered then return answered end
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] or redis.call('HGET', KEYS[2], ARGV[3]) ~= ARGV[4] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[3])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[2], ARGV[5], ARGV[6]) end
return answerOnce(KEYS[3], 1)

--- @script "drop-field"
--[[
  Removes a field of a tenant's durable names, if it still has the given text.

  KEYS[1] the tenant's durable names (hash)

  ARGV[1] field
  ARGV[2] the text

  Returns 1 when the field was removed, else 0.
]]
--- @include "../store/even-when-full.lua"

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
