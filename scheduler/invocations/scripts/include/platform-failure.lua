-- Ends an invocation in the platform's name: in the next epoch, so that whoever ran it can write no more.
-- `a` holds the end's arguments, `code` and `message`; data is the error event's JSON text.
local function platformFailure(a, epoch, seq, code, message, data)
  a.epoch = tonumber(epoch) + 1
  a.seq = tonumber(seq) + 1
  a.event = 'error'
  a.data = data
  a.status = code == 'cancelled' and 'cancelled' or 'failed'
  a.code = code
  a.message = message
  endInvocation(a)
end
