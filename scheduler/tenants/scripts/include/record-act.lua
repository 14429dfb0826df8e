-- Adds an administrative act to the log of its tenant and to the log of all tenants. Each log consists of two streams, which are bounded
-- separately and read as one.

-- The id of a log's next entry: it is later than all ids in both streams of the log, so no two entries of a log share an id.
local function later_id(stream, other)
  local time = redis.call('TIME')
  local ms, sequence = time[1] * 1000 + math.floor(time[2] / 1000), 0
  for _, key in ipairs({ stream, other }) do
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    if last then
      local last_ms, last_sequence = last[1]:match('^(%d+)-(%d+)$')
      last_ms, last_sequence = tonumber(last_ms), tonumber(last_sequence)
      if last_ms > ms or (last_ms == ms and last_sequence >= sequence) then
        ms, sequence = last_ms, last_sequence + 1
      end
    end
  end
  return string.format('%.0f-%.0f', ms, sequence)
end

-- KEYS[at], KEYS[at + 1] the log of the tenant: the stream that takes this act, and the other stream
-- KEYS[at + 2], KEYS[at + 3] the same for the log of all tenants
-- fields: approximate maximum of entries in KEYS[at], the same for KEYS[at + 2], then fields and values of the entry; an empty list writes
-- nothing
local function record_act(at, fields)
  if #fields < 3 then
    return
  end
  for i = 0, 2, 2 do
    local id = later_id(KEYS[at + i], KEYS[at + i + 1])
    redis.call('XADD', KEYS[at + i], 'MAXLEN', '~', fields[1 + i / 2], id, unpack(fields, 3))
  end
end
