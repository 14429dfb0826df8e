import assert from 'node:assert/strict';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { failureOf, value } from '../testing/outcome.ts';
import { Account } from './account.ts';
import { WorkerPool } from './pool.ts';

const CODE = ['.', '../../gpu-host/protocol', '../../package.json'].map((name) =>
  fileURLToPath(new URL(name, import.meta.url)),
);
const account = new Account();
const makePool = (options: { readonly maxBytes: number; readonly endCancelled: boolean }) =>
  new WorkerPool<string, string>({
    program: new URL('fixtures/echo.ts', import.meta.url),
    noun: 'the text',
    heapMb: 64,
    readable: () => CODE,
    maxWorkers: 1,
    idleMs: 1000,
    deadlineMs: 60_000,
    ...options,
  });

it('a pool answers cancelled jobs, and jobs above its limits, before a worker is ready', async () => {
  const pool = makePool({ maxBytes: 400, endCancelled: false });
  const answered: string[] = [];
  const run = async (request: string, tenant: string, bytes: number, signal?: AbortSignal) => {
    const outcome = await pool.run({ tenant, request, bytes, account, signal });
    answered.push(outcome.tag === 'ok' ? outcome.val : outcome.val.val);
    return outcome;
  };
  // A tenant may hold a fourth of the 400 bytes. The fourth job exceeds the 100 bytes of its tenant, and the eighth exceeds the 400 of all.
  const abortedLater = new AbortController();
  const jobs = [
    run('first', 'a', 90),
    run('second', 'a', 1, abortedLater.signal),
    run('third', 'a', 1, AbortSignal.abort()),
  ];
  jobs.push(run('fourth', 'a', 10), run('fifth', 'b', 100), run('sixth', 'c', 100), run('seventh', 'd', 100));
  jobs.push(run('eighth', 'e', 100));
  abortedLater.abort();
  const [first, ...others] = await Promise.all(jobs);
  assert.equal(value(first ?? assert.fail()), 'first');
  assert.deepEqual(others.map(failureOf), ['cancelled', 'cancelled', 'unavailable', 'ok', 'ok', 'ok', 'unavailable']);
  const refusals = answered.slice(0, 4).sort();
  assert.deepEqual(refusals, [
    'the caller waits no more for the answer',
    'the caller waits no more for the answer',
    'too many jobs of this tenant wait for a worker; try again later',
    'too many jobs wait for a worker; try again later',
  ]);
  await pool.close();
});

it("cancelling an answered job does not end the next tenant's job on the same thread", async () => {
  const pool = makePool({ maxBytes: 400, endCancelled: true });
  const controller = new AbortController();
  // Charging the first job aborts its signal a few microtasks later, when the thread already has the next job.
  const abortingAccount = {
    refuse: () => null,
    charge: () => void Promise.resolve().then(() => Promise.resolve().then(() => controller.abort())),
  };
  const outcomes = await Promise.all([
    pool.run({ tenant: 'a', request: 'first', bytes: 1, account: abortingAccount, signal: controller.signal }),
    pool.run({ tenant: 'b', request: 'second', bytes: 1, account }),
  ]);
  assert.ok(controller.signal.aborted);
  assert.deepEqual(outcomes.map(value), ['first', 'second']);
  await pool.close();
});
