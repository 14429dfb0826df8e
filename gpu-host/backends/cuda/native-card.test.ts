import { test } from 'node:test';
import { ARCHITECTURES, build, findNvcc } from './build-cache.ts';

// The cache keeps objects, so the build compiles only changed sources.
test('native: everything compiles for a card, without warnings', {
  skip: findNvcc() === undefined && 'nvcc is not installed',
}, async () => {
  const all = process.env.PIE_TEST_ALL === '1';
  for (const target of all ? (['addon', 'tests', 'harness'] as const) : (['addon'] as const)) {
    await build(target, { emulated: false, strict: true, checkOnly: !all });
  }
});

for (const arch of Object.keys(ARCHITECTURES)) {
  const skip = process.env.PIE_TEST_ALL ? !findNvcc() && 'nvcc is missing' : 'it takes minutes: npm run test:all';
  test(`native: the addon compiles for ${arch} without a warning`, { skip }, async () => {
    await build('addon', { emulated: false, arch, strict: true });
  });
}
