import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '#test/harness/platform.ts';
import { MutantWorker } from './mutant-worker.ts';

/** A worker that runs no mutant: it answers every request with its own process id as the message. */
const WORKER = `
process.on('message', ({ index }) => process.send({ index, stage: 'run', code: 'result', message: String(process.pid) }));
process.send({ ready: true });`;

test('after the worker process dies, the next mutant is reported as died and the mutant after it runs in a new process', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pie-mutants-'));
  try {
    const program = join(folder, 'worker.mjs');
    await writeFile(program, WORKER);
    using worker = new MutantWorker(program);
    const randomSeed = 1;
    const beforeDeath = await worker.run(randomSeed, 0);
    assert.ok(beforeDeath.kind === 'ended');
    const pid = Number(beforeDeath.message);
    process.kill(pid, 'SIGKILL');
    // The kernel keeps this folder until Node has noticed the exit of its child.
    await until('Node has noticed the exit of the worker process', () => !existsSync(`/proc/${pid}`));
    const atDeath = await worker.run(randomSeed, 1);
    assert.equal(atDeath.kind, 'died');
    const afterDeath = await worker.run(randomSeed, 2);
    assert.ok(afterDeath.kind === 'ended');
    assert.equal(afterDeath.index, 2);
    assert.notEqual(Number(afterDeath.message), pid);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
