import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { test } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { PLAIN as SHARED_PLATFORM_FILES } from '#infra/bootstrap/testing/steps.js';
import { Network } from '#test/harness/network.ts';
import { ROOT, runProgram } from '#test/harness/platform.ts';

const skip = Network.missingReason() || (!process.env.PIE_TEST_ALL && 'it takes minutes: npm run test:all');
/** Time limit of one test; all machines run on this one, which may have two cores. */
const TEST_MS = 300_000;

/** Other steps run these test files on a platform of this machine alone. Here the platform has machines that `pie join` sets up. */
test('the tests that share a platform pass on a gateway, two runtimes and three GPU hosts, each on a machine of its own', {
  skip,
}, async (t) => {
  const files = globSync(`test/e2e/@(${SHARED_PLATFORM_FILES}).test.ts`, { cwd: ROOT }).sort();
  assert.equal(files.length, SHARED_PLATFORM_FILES.split('|').length);
  const flags = ['--test', '--test-isolation=none', '--test-concurrency=1', `--test-timeout=${TEST_MS}`];
  // With this variable, the new test runner would act as one test file of this runner.
  const { NODE_TEST_CONTEXT: _, ...environment } = process.env;
  const { code, stdout, stderr } = await runProgram(process.execPath, [...flags, '--test-reporter=spec', ...files], {
    env: { ...environment, PIE_TEST_MACHINES: '1' },
    cwd: ROOT,
  });
  assert.equal(code, 0, stdout + stderr);
  const [passed = ''] = /(?<=^ℹ )pass [1-9]\d*$/m.exec(stripVTControlCharacters(stdout)) ?? [];
  assert.notEqual(passed, '', stdout);
  t.diagnostic(passed);
});
