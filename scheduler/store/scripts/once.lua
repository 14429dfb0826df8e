-- Of a call that is sent twice, because its first answer was lost with the connection, the second gets the first's answer and changes nothing:
-- what others have changed in between stays. `key` is the call's own.
local function answeredBefore(key)
  local text = redis.call('GET', key)
  return text and cjson.decode(text)
end

local REMEMBERED_MS = 60000

local function answerOnce(key, answer)
  redis.call('SET', key, cjson.encode(answer), 'PX', REMEMBERED_MS)
  return answer
end
