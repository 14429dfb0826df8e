import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type LuaStatement, parseLua, reachable } from './lua-script.ts';

const parsed = (lua: string) => parseLua(lua, 'file.lua');
const pruned = (lua: string) => reachable(parsed(lua).filter((part): part is LuaStatement => typeof part !== 'string'));

describe('the text of a script', () => {
  it('has what its statements reach, and no comments', () => {
    const lua = `--[[
  Header with local function used() in it.
]]
-- A comment that isn't code.
local STEP, UNUSED_STEP = 1, { 'local unused' }
local UNUSED = { a = 1 }
local later, unusedLater

local function unused()
  return later()
end
do
local known = {}
function later(name)
  -- Inside.
  known[name] = STEP
  if name then
    return 'unused() -- no comment'
  end
end
function unusedLater()
end
end
local value = redis.call('GET', KEYS[1])
return { later(KEYS[1]) }
`;
    assert.equal(
      pruned(lua),
      `local STEP, UNUSED_STEP = 1, { 'local unused' }
local later
do
local known = {}
function later(name)
  known[name] = STEP
  if name then
    return 'unused() -- no comment'
  end
end
end
local value = redis.call('GET', KEYS[1])
return { later(KEYS[1]) }
`,
    );
  });

  it('has functions that are used as values, after a concatenation, or only by a function that is reached', () => {
    const lua = `local function inner()
end
local function value()
  inner()
end
local function joined()
end
local function field()
end
call({ value, ''..joined, t.field, t:field() })
`;
    assert.deepEqual(
      [...pruned(lua).matchAll(/function (\w+)/g)].map(([, name]) => name),
      ['inner', 'value', 'joined'],
    );
  });

  it('keeps statements that have effects, also when nothing uses their names', () => {
    const lua = `local time = redis.call('TIME')
local text = tostring(1)
known = {}
if KEYS[1] then
  call()
elseif KEYS[2] then
  call()
end
for _, key in ipairs(KEYS) do
  redis.call('DEL', key)
end
call(function()
end)
`;
    assert.equal(pruned(lua), lua);
  });
});

describe('a file', () => {
  it('may include others between its statements', () => {
    const lua = `--- @include "./a.lua"\ndo\n--- @include "../b.lua"\nend\n`;
    assert.deepEqual(
      parsed(lua).map((part) => (typeof part === 'string' ? part : part.text)),
      ['./a.lua', 'do', '../b.lua', 'end'],
    );
  });

  const refused = {
    'a function that is not closed': 'local function f()\n  if x then\nend\n',
    'a statement after the end of a function': 'local function f() return 1 end g()\n',
    'a block after the end of a function': 'local function f()\n  end\n  while g() do\nend\n',
    'an include inside a function': 'local function f()\n--- @include "./a.lua"\nend\n',
    'two statements in a line': 'local a = 1 local b = 2\n',
    'an assignment after a value': "local a = 'x' b = 2\n",
    'an assignment after a semicolon': 'local a = {}; a.b = 1\n',
    'a call with a string': "local a = f 'x'\n",
    'a call with a table': 'local a = t.f{}\n',
    'a long string': 'local a = [[\n-- x\n]]\n',
    'a later comment in long brackets': 'local a = 1\n--[[ x\n]]\n',
  };
  for (const [name, lua] of Object.entries(refused))
    it(`may not contain ${name}`, () => assert.throws(() => parsed(lua), /^Error: file\.lua: /));
});
