import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const PYTHON = process.env.PYTHON ?? 'python3';
/** Answers one command. The next one never ends, as on a card that hangs. */
const HARNESS = `#!/bin/sh
read -r command
echo '{"command": "device", "result": {}}'
exec sleep 600
`;

test('bench.py writes what it has measured when its time is over', async (context) => {
  if (spawnSync(PYTHON, ['--version']).status !== 0) return context.skip(`${PYTHON} is not installed`);
  const folder = await mkdtemp(join(tmpdir(), 'pie-bench-'));
  try {
    const harness = join(folder, 'harness');
    await writeFile(harness, HARNESS, { mode: 0o755 });
    const args = ['--harness', harness, '--out', folder, '--no-peer', '--toy'];
    const bench = spawn(PYTHON, [join(import.meta.dirname, 'bench.py'), ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const closed = once(bench, 'close');
    // The line about the first answer.
    await once(bench.stderr, 'data');
    bench.kill('SIGTERM');
    await closed;
    const { records } = JSON.parse(await readFile(join(folder, 'results.json'), 'utf8'));
    assert.deepEqual(
      records.map(({ command }: { command: string }) => command),
      ['device'],
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
