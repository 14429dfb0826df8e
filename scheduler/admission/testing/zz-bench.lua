--- @include "../scripts/include/admission.lua"
local prefix, count, tenants, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local jobs = prefix .. ':bull:invocations:'
if ARGV[5] == 'fill' then
  for i = 1, count do
    local id, tenant = 'j' .. i, 't' .. (i % tenants)
    redis.call('HSET', prefix .. ':invocation:' .. id, 'status', 'queued', 'tenant', tenant, 'prefix', prefix, 'declaredPages', 1 + (ARGV[6] == 'pages' and i % 7 or 3), 'firstModel', 'm')
    redis.call('HSET', jobs .. id, 'name', 'invoke')
    enterLine(prefix, tenant, id, i, now)
  end
else
  for i = 1, count do
    local id = redis.call('RPOP', jobs .. 'wait')
    redis.call('HSET', jobs .. id, 'pb', 'r')
    local tenant = redis.call('HGET', prefix .. ':invocation:' .. id, 'tenant')
    leaveAdmission(prefix, tenant, id, now + i)
  end
end
return 1
