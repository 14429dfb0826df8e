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
