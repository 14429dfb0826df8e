import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import { type EndedAttempt, restart } from './restart.ts';

test('an attempt is requeued once its lost GPU host is back, although its connection ended after the link of the tenant', async () => {
  const host = { connected: true };
  let isBack = false;
  setTimeout(() => Object.assign(host, { connected: false }), 10);
  setTimeout(() => {
    host.connected = true;
    isBack = true;
  }, 150);
  const requeues: boolean[] = [];
  const requeue = async () => {
    requeues.push(isBack);
    return 'requeued';
  };
  const ended = {
    attempt: {
      job: { id: 'a', restartable: true },
      epoch: 1,
      outbox: { end: null, finish: (write: (seq: number) => Promise<unknown>) => write(1) },
      signal: new AbortController().signal,
      family: { pages: { peak: new Map() } },
      observed: undefined,
    },
    verdict: { kind: 'error', code: 'device-lost', message: 'the GPU host closed the connection' },
    lost: [host],
    usage: () => ({}),
    released: Promise.resolve(),
  } as unknown as EndedAttempt;
  const invocations = { requeue } as unknown as Parameters<typeof restart>[0]['invocations'];
  assert.deepEqual(await restart({ invocations, log: silentLog }, ended), { kind: 'silent' });
  assert.deepEqual(requeues, [true]);
});
