import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
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

test('a runtime that stood still for ten seconds has no say in what it ran', async () => {
  const runtime = platform.pid('runtime-1');
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
  process.kill(runtime, 'SIGSTOP');
  try {
    await plain.ended;
    assert.equal(plain.events.at(-1)?.data.code, 'runtime-lost');
    assert.ok((plain.at.at(-1) ?? 0) - stoppedAt <= KNOWN_WITHIN_MS);
    await sleep(STOPPED_MS - (Date.now() - stoppedAt));
  } finally {
    process.kill(runtime, 'SIGCONT');
  }
  // It is the same process, registered anew: it runs what may start again from the beginning.
  await again.ended;
  assert.equal(await checkEnded(platform, again), 'result');
  assert.equal(again.events.filter(({ event }) => event === 'start').length, 2);
  assert.equal(await checkEnded(platform, plain), 'runtime-lost');
  assert.equal(platform.pid('runtime-1'), runtime, 'nobody had to restart it');
  await until('what it held on the device is free', async () => (await modelStats(platform)).pages.owned === 0);
});
