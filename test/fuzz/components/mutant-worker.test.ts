import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '#test/harness/platform.ts';
import { MutantWorker } from './mutant-worker.ts';

/** Answers with its process id. */
const WORKER = `
process.on('message', ({ index }) => process.send({ index, stage: 'run', code: 'result', message: String(process.pid) }));
process.send({ ready: true });`;

test('a process that dies between two mutants is reported and replaced', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pie-mutants-'));
  try {
    const program = join(folder, 'worker.mjs');
    await writeFile(program, WORKER);
    using worker = new MutantWorker(program);
    const first = await worker.run(1, 0);
    assert.ok(first.kind === 'ended');
    const pid = Number(first.message);
    process.kill(pid, 'SIGKILL');
    await until('this process knows that the other one has ended', () => !existsSync(`/proc/${pid}`));
    assert.equal((await worker.run(1, 1)).kind, 'died');
    const third = await worker.run(1, 2);
    assert.ok(third.kind === 'ended' && third.index === 2 && third.message !== first.message);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
