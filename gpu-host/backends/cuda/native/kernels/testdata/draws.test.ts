import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { DRAWS_FILE, drawsHeader } from './draws.ts';

test('the draws that the kernels are held to are those of the sampler', () => {
  assert.ok(
    readFileSync(DRAWS_FILE, 'utf8') === drawsHeader,
    'draws.h differs: run testdata/draws.ts, and change head-draw.h with the sampler',
  );
});
