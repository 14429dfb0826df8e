-- True while the attempt of that epoch runs: only then may it write data that others read. A caller that is no attempt passes '' and may write.
local function isCurrent(record, epoch)
  if epoch == '' then
    return true
  end
  local status, current = unpack(redis.call('HMGET', record, 'status', 'epoch'))
  return status == 'running' and current == epoch
end
