import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstFunctions } from '#infra/bundled.ts';
import { PROGRAM } from './loop.ts';

test('a starting platform deploys the function of the demo before it serves requests', () => {
  assert.ok(firstFunctions({ encoders: [] }).includes(PROGRAM));
});
