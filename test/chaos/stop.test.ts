import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXPRESS_RUNTIME, RUNTIME } from '#infra/runtimes.ts';
import { modelStats } from '#test/harness/deploy.ts';
import { type Platform, until } from '#test/harness/platform.ts';
import { checkEnded, watch } from './invocations.ts';
import { startPlatform } from './kill-runs.ts';

const STOPPED_MS = 10_000;
const KNOWN_WITHIN_MS = 3000;

let platform: Platform;
before(async () => {
  platform = await startPlatform();
});
after(() => platform?.[Symbol.asyncDispose]());

test('runtimes that stood still for ten seconds have no say in what they ran', async () => {
  const runtimes = [RUNTIME, EXPRESS_RUNTIME].map((name) => platform.pid(name));
  let begun: () => void = () => undefined;
  const under = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const input = { tokens: 200, pauseMs: 25 };
  const onEvent = ({ id }: { id: string }) => {
    if (id === '8') begun();
  };
  const plain = await watch(platform, { mark: 'plain', ...input }, { restartable: false, onEvent });
  const again = await watch(platform, { mark: 'again', ...input }, { restartable: true });
  await under;
  const stoppedAt = Date.now();
  for (const runtime of runtimes) process.kill(runtime, 'SIGSTOP');
  try {
    await plain.ended;
    assert.equal(plain.events.at(-1)?.data.code, 'runtime-lost');
    assert.ok((plain.at.at(-1) ?? 0) - stoppedAt <= KNOWN_WITHIN_MS);
    await sleep(STOPPED_MS - (Date.now() - stoppedAt));
  } finally {
    for (const runtime of runtimes) process.kill(runtime, 'SIGCONT');
  }
  // They are the same processes, registered anew: they run what may start again from the beginning.
  await again.ended;
  assert.equal(await checkEnded(platform, again), 'result');
  assert.equal(again.events.filter(({ event }) => event === 'start').length, 2);
  assert.equal(await checkEnded(platform, plain), 'runtime-lost');
  const now = [RUNTIME, EXPRESS_RUNTIME].map((name) => platform.pid(name));
  assert.deepEqual(now, runtimes, 'nobody had to restart them');
  await until('what it held on the device is free', async () => (await modelStats(platform)).pages.owned === 0);
});
