import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { it } from 'node:test';

it('pie bench refuses unknown flags and flags without effect, and prints no stack trace', () => {
  const cases = [
    [['no-such-bench', '--against', 'earlier.json'], /^error: --against has no effect without `pie bench all`/],
    [['all', 'no-such-suite', '--json'], /^error: --json has no effect on `pie bench all`/],
    [['no-such-bench', '--rounds', '3'], /^error: Unknown option '--rounds'/],
  ] as const;
  for (const [args, message] of cases) {
    const { status, stderr } = spawnSync(process.execPath, [path.join(import.meta.dirname, 'main.ts'), ...args], {
      encoding: 'utf8',
      timeout: 20_000,
    });
    assert.equal(status, 1);
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /\n {4}at /);
  }
});
