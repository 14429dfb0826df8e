-- Key of runtime memory, in MiB, among counts of pages by model. No model has such a name.
local MEMORY = '#memory'
-- Pages expected of an unknown function, on the first model that its manifest names, or the platform's first model by name.
local DEFAULT_PAGES = 4

-- Returns the platform's first model by name, or nil. A capacity that an earlier release has written does not name this model, so the function
-- searches the fields of that capacity.
local function firstModel(a)
  for _, field in ipairs(not a.leaving and redis.call('HKEYS', a.base .. 'capacity') or {}) do
    local model = string.match(field, '^pages:([^@]+)')
    a.first = model and model ~= MEMORY and (not a.first or model < a.first) and model or a.first
  end
  return a.first
end

-- Returns the KV pages, by model, that an invocation is expected to hold: declared in its manifest, else learned from its version, else the default.
-- They are at least what an attempt held or asked for when it was ended for lack of memory (`least`), and at most what the tenant's quota allows
-- (`most`, nil for no quota). The result also has the runtime memory that the invocation is expected to take: learned from its version, else from
-- its record. Fields read from the record: `declared`, `first` (model), `least`, `learnedKey`, `memory`.
local function expectedPages(a, record, most)
  local declared, first = record.declared, record.first
  first = first or firstModel(a)
  local all = {}
  local number = tonumber(declared)
  if number then
    all = first and { [first] = number } or {}
  elseif declared then
    all = cjson.decode(declared)
  else
    local learned = record.learnedKey and redis.call('HGETALL', record.learnedKey) or {}
    for i = 1, #learned, 2 do
      local model = string.match(learned[i], '^pages:(.*)$')
      if model then
        all[model] = tonumber(learned[i + 1])
      end
    end
    if first and not learned[1] then
      all[first] = DEFAULT_PAGES
    end
  end
  all[MEMORY] = tonumber(record.learnedKey and redis.call('HGET', record.learnedKey, 'pages:' .. MEMORY) or record.memory or 0)
  for model, count in pairs(record.least and cjson.decode(record.least) or {}) do
    all[model] = math.max(all[model] or 0, count)
  end
  for model, count in pairs(all) do
    if most and model ~= MEMORY then
      count = math.min(count, most)
    end
    all[model] = count >= 1 and count or nil
  end
  return all
end
