import { test } from 'node:test';
import { build } from './build-targets.ts';
import { findNvcc } from './build-tools.ts';

// Objects are kept: only what changed is compiled again.
test('native: everything compiles for a card, without warnings', {
  skip: findNvcc() === undefined && 'nvcc is not here',
}, async () => {
  const all = process.env.PIE_TEST_ALL === '1';
  for (const target of all ? (['addon', 'tests', 'harness'] as const) : (['addon'] as const)) {
    await build(target, { emulated: false, strict: true, background: true });
  }
});
