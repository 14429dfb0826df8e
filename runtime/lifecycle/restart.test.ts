import assert from 'node:assert/strict';
import { test } from 'node:test';
import { END_RECORDS, EndLog } from '#scheduler/invocations/endings.ts';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { type EndedAttempt, restart } from './restart.ts';
import { failure } from './verdict.ts';

test('restart requeues an invocation only once its lost GPU host is back, even if the loss shows late', async () => {
  // The tenant's link to the host has ended. The connection that shows whether the host is there ends 10 ms later, and returns after 150 ms.
  const host = { connected: true };
  let isBack = false;
  setTimeout(() => Object.assign(host, { connected: false }), 10);
  setTimeout(() => {
    host.connected = true;
    isBack = true;
  }, 150);
  /** For each requeue, true when the host was back. */
  const requeues: boolean[] = [];
  const requeue = async () => {
    requeues.push(isBack);
    return 'requeued';
  };
  const ended = {
    attempt: {
      job: { id: 'a', tenant: 'acme', function: 'story', restartable: true },
      epoch: 1,
      outbox: { end: null, finish: (write: (seq: number) => Promise<unknown>) => write(1) },
      signal: new AbortController().signal,
      family: { pages: { peak: new Map() } },
      observed: undefined,
    },
    verdict: failure('device-lost', 'The GPU host was lost.', { gpuHosts: ['gpu-host-1'] }),
    lost: [host],
    usage: () => ({}),
    released: Promise.resolve(),
  } as unknown as EndedAttempt;
  const invocations = { requeue } as unknown as Parameters<typeof restart>[0]['invocations'];
  const log = new CollectedLog();
  assert.deepEqual(await restart({ invocations, ends: new EndLog(log), log }, ended), { kind: 'silent' });
  assert.deepEqual(requeues, [true]);
  const of = { tenant: 'acme', function: 'story', invocation: 'a' };
  const why = { code: 'device-lost', cause: 'The GPU host was lost.', figures: { gpuHosts: ['gpu-host-1'] } };
  assert.deepEqual(log.records, [{ level: 'warn', message: END_RECORDS['starts-again'], fields: { ...of, ...why } }]);
});
