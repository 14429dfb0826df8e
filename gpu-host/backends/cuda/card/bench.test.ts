import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const PYTHON = process.env.PYTHON ?? 'python3';
/** A harness that answers one command and then hangs, as on a card that hangs. */
const HARNESS = `#!/bin/sh
read -r command
echo '{"command": "device", "result": {}}'
exec sleep 600
`;

/** A harness whose first answer is not JSON, as when a driver writes to standard output. */
const BROKEN = `#!/bin/sh
read -r command
echo 'a warning of the driver'
exec sleep 600
`;

/** `check.json` of a check in which a handler gave a number that is not finite, and a model failed. */
const CHECK = {
  models: [
    {
      model: 'a',
      precision: 'bf16',
      handlers: [{ handler: 'score', error: null, within: false, values: 1 }],
      cells: [],
    },
    { model: 'b', precision: 'float32', failed: 'no memory', handlers: [], cells: [] },
  ],
};

test('bench.py, when it is terminated, writes the measurements so far and the findings of the check', async (context) => {
  if (spawnSync(PYTHON, ['--version']).status !== 0) return context.skip(`${PYTHON} is not installed`);
  const folder = await mkdtemp(join(tmpdir(), 'pie-bench-'));
  try {
    const harness = join(folder, 'harness');
    await writeFile(harness, HARNESS, { mode: 0o755 });
    await writeFile(join(folder, 'check.json'), JSON.stringify(CHECK));
    const args = ['--harness', harness, '--out', folder, '--no-peer', '--toy'];
    const bench = spawn(PYTHON, [join(import.meta.dirname, 'bench.py'), ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const closed = once(bench, 'close');
    // Wait for the progress line of the first answer.
    await once(bench.stderr, 'data');
    bench.kill('SIGTERM');
    await closed;
    const { records, aims } = JSON.parse(await readFile(join(folder, 'results.json'), 'utf8'));
    assert.deepEqual(
      records.map(({ command }: { command: string }) => command),
      ['device'],
    );
    for (const [i, bad] of ['a: score', 'b'].entries()) {
      assert.equal(aims[i].value, null);
      assert.ok(aims[i].note.endsWith(`; not within: ${bad}`), aims[i].note);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('bench.py records answers that are no JSON as errors, and gives up after five', async (context) => {
  if (spawnSync(PYTHON, ['--version']).status !== 0) return context.skip(`${PYTHON} is not installed`);
  const folder = await mkdtemp(join(tmpdir(), 'pie-bench-'));
  try {
    const harness = join(folder, 'harness');
    await writeFile(harness, BROKEN, { mode: 0o755 });
    const args = ['--harness', harness, '--out', folder, '--no-peer', '--toy'];
    const { status } = spawnSync(PYTHON, [join(import.meta.dirname, 'bench.py'), ...args], {
      stdio: 'ignore',
      timeout: 120_000,
    });
    const { records } = JSON.parse(await readFile(join(folder, 'results.json'), 'utf8'));
    assert.deepEqual([status, records.length], [1, 5]);
    for (const { error } of records) assert.match(error, /JSONDecodeError/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
