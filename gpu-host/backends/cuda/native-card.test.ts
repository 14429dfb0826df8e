import { test } from 'node:test';
import { build } from './build-targets.ts';
import { findNvcc } from './build-tools.ts';

// The cache keeps objects, so the build compiles only changed sources.
test('native: everything compiles for a card, without warnings', {
  skip: findNvcc() === undefined && 'nvcc is not installed',
}, async () => {
  const all = process.env.PIE_TEST_ALL === '1';
  for (const target of all ? (['addon', 'tests', 'harness'] as const) : (['addon'] as const)) {
    await build(target, { emulated: false, strict: true, checkOnly: !all });
  }
});
