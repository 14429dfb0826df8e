-- Returns `text` with `by` in place of the first match of `pattern`. `string.gsub` would copy the rest of a long text character by character.
local function replaced(text, pattern, by)
  local first, last = string.find(text, pattern)
  if not first then
    return text
  end
  return string.sub(text, 1, first - 1) .. by .. string.sub(text, last + 1)
end
