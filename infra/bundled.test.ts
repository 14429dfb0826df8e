import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bundledFunctions, FIRST_FUNCTIONS } from './bundled.ts';
import { ROOT } from './install.ts';

test('bundledFunctions lists the first functions first and each function once', () => {
  const names = bundledFunctions({ root: ROOT });
  assert.deepEqual(names.slice(0, FIRST_FUNCTIONS.length), FIRST_FUNCTIONS);
  assert.equal(new Set(names).size, names.length);
  assert.ok(names.length > FIRST_FUNCTIONS.length);
});
