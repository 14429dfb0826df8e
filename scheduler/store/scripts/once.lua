-- A call is sent twice when its first answer was lost with the connection. The second call gets the first one's answer and changes nothing,
-- so it cannot undo changes that other calls made in between. `key` is unique to the call.
local function answeredBefore(key)
  local text = redis.call('GET', key)
  return text and cjson.decode(text)
end

local REMEMBERED_MS = 60000

local function answerOnce(key, answer)
  redis.call('SET', key, cjson.encode(answer), 'PX', REMEMBERED_MS)
  return answer
end
