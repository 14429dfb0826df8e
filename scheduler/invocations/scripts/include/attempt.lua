-- Whether the attempt of that epoch runs still, so that it may write where others read; '' is nobody's attempt, and may.
local function isCurrent(record, epoch)
  if epoch == '' then
    return true
  end
  local status, current = unpack(redis.call('HMGET', record, 'status', 'epoch'))
  return status == 'running' and current == epoch
end
