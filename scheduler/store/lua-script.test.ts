import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Redis } from 'ioredis';
import { TestRedis } from '../testing/redis.ts';
import { loadScript, scriptsIn } from './lua-script.ts';
import { allGlobals, compileLua, type LuaFunction } from './testing/lua-globals.ts';

const ROOT = new URL('../', import.meta.url);
const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' });
const scripts = files
  .filter((file) => file.endsWith('.lua'))
  .flatMap((file) => {
    const url = new URL(file, ROOT);
    const ownName = /[\\/]testing[\\/]/.test(file) ? [undefined] : [];
    return [...ownName, ...scriptsIn(url)].map((name) => ({
      file: `${file} ${name ?? ''}`,
      lua: loadScript(url, name).lua,
    }));
  });
// Without `local`, the function has an earlier declaration, such as `local gather`.
const namesIn = (lua: string) => [...lua.matchAll(/^(?:local )?function (\w+)/gm)].map(([, name]) => name ?? '');

/** The globals of Redis and of Lua that scripts use. */
const GLOBALS = new Set(
  `ARGV KEYS cjson cmsgpack error ipairs math next pairs pcall redis setmetatable string struct table tonumber tostring type unpack`.split(
    ' ',
  ),
);

describe('every script', () => {
  let redis: TestRedis;
  let connection: Redis;
  before(async () => {
    redis = await TestRedis.start();
    connection = redis.connect();
  });
  after(() => redis.stop());

  it('is found', () => assert.ok(scripts.length > 100));

  it('defines no two top-level functions of the same name', () => {
    for (const { file, lua } of scripts) {
      const twice = namesIn(lua).filter((name, i, all) => all.indexOf(name) !== i);
      assert.deepEqual(twice, [], file);
    }
  });

  it('uses no other globals than those of Redis and Lua', async () => {
    for (const { file, lua } of scripts) {
      const main = await compileLua(connection, lua);
      assert.deepEqual(
        [...allGlobals(main, 'readGlobals')].filter((name) => !GLOBALS.has(name)),
        [],
        file,
      );
      assert.deepEqual([...allGlobals(main, 'writtenGlobals')], [], file);
    }
  });

  it('contains no top-level function that it cannot reach', async () => {
    for (const { file, lua } of scripts) assert.deepEqual(await unreachable(connection, lua), [], file);
  });

  it('finds unreachable functions, also those that only call each other', async () => {
    const lua = `local used
local function ping() return pong() end
local function pong() return ping() end
local function hidden() end
function used(hidden) return hidden end
return used(1)`;
    assert.deepEqual(await unreachable(connection, lua), ['ping', 'pong', 'hidden']);
  });
});

it('a script keeps the text that its files had when it was loaded, even if it is first used later', () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-lua-'));
  const write = (number: number) => {
    writeFileSync(path.join(folder, 'include.lua'), `local function one() return ${number} end\n`);
    writeFileSync(path.join(folder, 'main.lua'), `--- @include "./include.lua"\nreturn one() + ${number}\n`);
  };
  try {
    write(1);
    const script = loadScript(pathToFileURL(path.join(folder, 'main.lua')));
    write(2);
    assert.equal(script.lua, 'local function one() return 1 end\nreturn one() + 1\n');
    assert.equal(script.name, 'main');
  } finally {
    rmSync(folder, { recursive: true });
  }
});

describe('a file of several scripts', () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-lua-'));
  after(() => rmSync(folder, { recursive: true }));
  const urlOf = (name: string, lua: string) => {
    writeFileSync(path.join(folder, name), lua);
    return pathToFileURL(path.join(folder, name));
  };
  const pair = urlOf(
    'pair.lua',
    `-- Both.\nlocal function shared() return 1 end\nlocal function other() return 2 end
--- @script "first"\n--[[\n  The first.\n]]\nreturn shared()\n--- @script "second"\nreturn other()\n`,
  );
  const user = urlOf('user.lua', '--- @include "./pair.lua"\nreturn shared() + other()\n');

  it('gives each script what it reaches of the shared part', () => {
    assert.deepEqual(scriptsIn(pair), ['first', 'second']);
    assert.equal(loadScript(pair, 'first').lua, 'local function shared() return 1 end\nreturn shared()\n');
    assert.equal(loadScript(pair, 'second').lua, 'local function other() return 2 end\nreturn other()\n');
    assert.equal(loadScript(pair, 'second').name, 'second');
  });

  it('gives a file that includes it the shared part only', () =>
    assert.equal(
      loadScript(user).lua,
      'local function shared() return 1 end\nlocal function other() return 2 end\nreturn shared() + other()\n',
    ));

  it('has no other scripts', () => {
    assert.throws(() => loadScript(pair, 'third'), /^Error: .*pair\.lua has no script "third"\.$/);
    assert.deepEqual(scriptsIn(user), []);
  });
});

/**
 * Names of the top-level functions that a script cannot reach. Makes all top-level functions global first, so that the compiled script shows
 * which of them each function uses.
 */
async function unreachable(redis: Redis, lua: string): Promise<string[]> {
  const withGlobals = lua.replaceAll(/^local (?=function )/gm, '').replaceAll(/^local [\w, ]+$/gm, '');
  const lines = withGlobals.split('\n');
  const main = await compileLua(redis, withGlobals);
  const nameOf = ({ line }: LuaFunction) => /^function (\w+)/.exec(lines[line - 1] ?? '')?.[1];
  const functions = new Map(main.inner.map((inner) => [nameOf(inner), inner]));
  const reached = new Set(main.readGlobals);
  for (const inner of main.inner)
    if (nameOf(inner) === undefined) for (const name of allGlobals(inner, 'readGlobals')) reached.add(name);
  for (const name of reached) {
    const inner = functions.get(name);
    if (inner !== undefined) for (const used of allGlobals(inner, 'readGlobals')) reached.add(used);
  }
  return namesIn(lua).filter((name) => !reached.has(name));
}
