--[[
  Tells a reaper what there is to do, so that an idle platform costs one command a round.

  KEYS[1] registered runtimes (hash)
  KEYS[2] deadlines of invocations that have not ended (sorted set)
  KEYS[3] tenants with invocations that wait or are admitted (set)
  KEYS[4] tenants by the time of their next expiring stored value (sorted set)
  KEYS[5] removed functions and versions that still drain (hash)
  KEYS[6] debounced invocations by the end of their delay (sorted set)
  ARGV[1] prefix of every key
  ARGV[2] now, ms
  ARGV[3] most overdue invocations returned

  Returns {ids of runtimes whose lease has run out, ids of overdue invocations, 1 when tenants wait or hold slots, 1 when stored values have
  expired, 1 when removals are under way, 1 when debounced invocations are due}.
]]
local dead = {}
for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
  if redis.call('EXISTS', ARGV[1] .. ':runtime:' .. id .. ':alive') == 0 then
    dead[#dead + 1] = id
  end
end
return {
  dead,
  redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3]),
  redis.call('EXISTS', KEYS[3]),
  redis.call('ZCOUNT', KEYS[4], '-inf', ARGV[2]) > 0 and 1 or 0,
  redis.call('EXISTS', KEYS[5]),
  redis.call('ZCOUNT', KEYS[6], '-inf', ARGV[2]) > 0 and 1 or 0,
}
