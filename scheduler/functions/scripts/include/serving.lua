-- Finds the first of the functions (keys of hashes, see alias.lua) in which `reference` names a version or an alias ('' for `live`). Returns that
-- function's index and the text that decides which versions the reference serves: the alias's state as JSON, or the version itself. Returns
-- nothing when no function has the reference.
local function findServing(functions, reference)
  local alias = reference == '' and 'live' or reference
  for i, fn in ipairs(functions) do
    if reference ~= '' and redis.call('HEXISTS', fn, 'version:' .. reference) == 1 then
      return i, reference
    end
    local state = redis.call('HGET', fn, 'alias:' .. alias)
    if state then
      return i, state
    end
    -- Earlier releases of Pie had no aliases: they named the version in service in the field `current`.
    local current = alias == 'live' and redis.call('HGET', fn, 'current')
    if current and redis.call('HEXISTS', fn, 'version:' .. current) == 1 then
      return i, current
    end
  end
end
