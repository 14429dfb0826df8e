import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CLASSES } from '../attack.ts';
import { attackBytes } from '../guest.ts';
import { CORPUS, QUICK } from './index.ts';

test('each attack has a unique name that is a valid function name', () => {
  const names = CORPUS.map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  for (const name of names) assert.match(name, /^[a-z][a-z0-9-]{0,62}$/);
});

test('each class has attacks in the quick part', () => {
  for (const kind of CLASSES) {
    assert.ok(
      QUICK.some((attack) => attack.kind === kind),
      `no quick attack of the class ${kind}`,
    );
  }
});

test('each attack is valid WebAssembly', async () => {
  // `hostile.test.ts` assembles the quick attacks.
  for (const { name, source } of CORPUS.filter((attack) => !QUICK.some(({ name }) => name === attack.name))) {
    await attackBytes(source()).catch((error) => assert.fail(`${name}: ${error.message}`));
  }
});
