import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { it } from 'node:test';
import { loadScript } from './lua-script.ts';

const ROOT = new URL('../', import.meta.url);

it('no script defines two top-level functions of the same name', () => {
  const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' });
  const scripts = files.filter((file) => file.endsWith('.lua') && !/[\\/]include[\\/]/.test(file));
  assert.ok(scripts.length > 50, 'the search finds the scripts');
  for (const file of scripts) {
    const { lua } = loadScript(new URL(file, ROOT));
    // Without `local`, the function has an earlier declaration, such as `local gather`.
    const functions = [...lua.matchAll(/^(?:local )?function (\w+)/gm)].map(([, name]) => name);
    const twice = functions.filter((name, i) => functions.indexOf(name) !== i);
    assert.deepEqual(twice, [], file);
  }
});
