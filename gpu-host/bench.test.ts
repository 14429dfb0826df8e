import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

test('the benchmark refuses an unknown backend and names the known ones', () => {
  const bench = join(import.meta.dirname, 'bench.ts');
  const { status, stderr } = spawnSync(process.execPath, [bench, '--backend', 'onxx'], {
    encoding: 'utf8',
    timeout: 240_000,
  });
  assert.equal(status, 1, stderr);
  assert.match(stderr, /There is no backend "onxx"\. The backends are onnx, reference, cuda, ggml\./);
});
