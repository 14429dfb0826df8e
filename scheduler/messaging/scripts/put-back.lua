--[[
  Gives a pull up: what it took goes back to its place in the line, and should the call itself come only now, it takes nothing.

  KEYS[1] line (sorted set)
  KEYS[2] state (hash)
  KEYS[3] reply to the pull (string)

  ARGV[1] channel of the line
  ARGV[2] after what time untouched the line is forgotten, ms
  ARGV[3] how long the reply is remembered, ms

  Returns 1 when a message was put back, else 0.
]]
local taken = redis.call('GET', KEYS[3])
redis.call('SET', KEYS[3], '', 'PX', ARGV[3])
if not taken or taken == '' then
  return 0
end
redis.call('ZADD', KEYS[1], struct.unpack('>I8', taken), taken)
redis.call('HINCRBY', KEYS[2], 'bytes', #taken - 8)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('PUBLISH', ARGV[1], '')
return 1
