import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { value } from '../testing/outcome.ts';
import { threadRights } from './compiled-code.ts';
import type { Report } from './fixtures/reporter.ts';
import { RIGHTS, type Rights } from './fixtures/tell-rights.ts';
import { WorkerThread } from './thread.ts';

const CODE = ['.', '../../gpu-host/protocol', '../../package.json'].map((each) =>
  fileURLToPath(new URL(each, import.meta.url)),
);
const DEADLINE_MS = 60_000;

describe('worker threads', () => {
  const { NODE_COMPILE_CACHE: before } = process.env;
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'pie-compiled-'));
    process.env.NODE_COMPILE_CACHE = folder;
  });
  afterEach(async () => {
    if (before === undefined) delete process.env.NODE_COMPILE_CACHE;
    else process.env.NODE_COMPILE_CACHE = before;
    await rm(folder, { recursive: true });
  });

  async function reportOfThread(): Promise<Report> {
    const thread = new WorkerThread<null, Report>({
      program: new URL('./fixtures/reporter.ts', import.meta.url),
      ...{ noun: 'the report', readable: CODE, heapMb: 64 },
    });
    try {
      return value(await thread.run({ request: null }, DEADLINE_MS, () => undefined));
    } finally {
      await thread.end();
    }
  }

  it('load the compiled code that an earlier one kept, and cannot change it in a job', async () => {
    const [first, second] = [await reportOfThread(), await reportOfThread()];
    const rights = { write: 'ERR_ACCESS_DENIED', environment: [] };
    assert.deepEqual(
      [first, second],
      [
        { compiles: true, ...rights },
        { compiles: false, ...rights },
      ],
    );
  });

  it('run without a compile cache', async () => {
    delete process.env.NODE_COMPILE_CACHE;
    assert.equal((await reportOfThread()).compiles, true);
  });

  for (const program of ['texts/worker.ts', 'images/worker.ts', 'grammar/matching/worker.ts']) {
    it(`of ${program} may write nothing once they serve`, async () => {
      const { env, execArgv } = threadRights(['*']);
      const worker = new Worker(new URL(`../${program}`, import.meta.url), {
        env,
        execArgv: [...execArgv, '--import', new URL('./fixtures/tell-rights.ts', import.meta.url).href],
      });
      const channel = new BroadcastChannel(RIGHTS);
      try {
        // A worker says when it is ready.
        await once(worker, 'message');
        const answer = once(channel, 'message');
        channel.postMessage('what may you do?');
        const [{ data }] = (await answer) as [{ readonly data: Rights }];
        assert.deepEqual(data, { read: true, write: false });
      } finally {
        channel.close();
        await worker.terminate();
      }
    });
  }
});
