import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';

const PRELOAD = new URL('end-hanging.ts', import.meta.url);
const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-hanging-'));
after(() => rmSync(directory, { recursive: true, force: true }));

test('a test file fails when its process outlives its tests, and the other files still run', () => {
  const files = {
    'hangs.test.mjs': `import { test } from 'node:test'; test('passes', () => { setInterval(() => undefined, 1000); });`,
    'ends.test.mjs': `import { test } from 'node:test'; test('passes, too', () => undefined);`,
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(directory, name), text);
  const { NODE_TEST_CONTEXT: _, ...environment } = process.env;
  const { stdout, status } = spawnSync(
    process.execPath,
    ['--test', `--import=${PRELOAD}`, '--test-reporter=spec', ...Object.keys(files)],
    { cwd: directory, encoding: 'utf8', timeout: 240_000, env: { ...environment, PIE_TEST_GRACE_MS: '1000' } },
  );
  assert.equal(status, 1, stdout);
  assert.match(stdout, /hangs\.test\.mjs: all tests ended 1 s ago, but its process did not\. It holds .*Timeout/);
  // Both tests pass; the runner counts the file that was ended as a failed test.
  assert.match(stdout, /pass 2\n.*fail 1\n/);
});
