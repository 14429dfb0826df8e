-- True while the attempt of that epoch runs, and so may write data that others read. A caller with epoch '' is no attempt, and may write.
local function isCurrent(record, epoch)
  if epoch == '' then
    return true
  end
  local status, current = unpack(redis.call('HMGET', record, 'status', 'epoch'))
  return status == 'running' and current == epoch
end
