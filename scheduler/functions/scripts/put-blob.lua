--[[
  Stores bytes that are removed by themselves unless something comes to use them.

  KEYS[1] component (string)
  KEYS[2] users of the component (set)
  ARGV[1] bytes
  ARGV[2] how long they are kept without a user, ms

  Returns 1 stored, 0 they were there already.
]]
if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('SCARD', KEYS[2]) == 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
