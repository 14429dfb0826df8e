import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { DRAWS_FILE, drawsHeader } from './draws.ts';

test('draws.h, the reference of the kernels, matches the sampler', () => {
  assert.ok(
    readFileSync(DRAWS_FILE, 'utf8') === drawsHeader,
    'draws.h differs from the sampler: run testing/draws.ts, and update head-draw.h to match',
  );
});
