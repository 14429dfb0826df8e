import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstFunctions } from '#infra/bundled.ts';
import { PROGRAM } from './program.ts';

test('a start deploys the function of the demo before it serves', () => {
  assert.ok(firstFunctions({ encoders: [] }).includes(PROGRAM));
});
