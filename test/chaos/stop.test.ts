import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXPRESS_RUNTIME, RUNTIME } from '#infra/runtimes.ts';
import { modelStats } from '#test/harness/deploy.ts';
import { say } from '#test/harness/events.ts';
import { type Platform, until } from '#test/harness/platform.ts';
import { checkEnded, type Watched, watch } from './invocations.ts';
import { startPlatform } from './kill-runs.ts';

const STOPPED_MS = 10_000;

let platform: Platform;
before(async () => {
  platform = await startPlatform();
});
after(() => platform?.[Symbol.asyncDispose]());

test('runtimes that stood still for ten seconds have no say in what they ran', async () => {
  const runtimes = [RUNTIME, EXPRESS_RUNTIME].map((name) => platform.pid(name));
  // Neither ends before it is told to go on.
  const input = { tokens: 40, listenAt: 8 };
  const plain = await watch(platform, { mark: 'plain', ...input }, { restartable: false });
  const again = await watch(platform, { mark: 'again', ...input }, { restartable: true });
  const said = ({ events }: Watched) => events.filter(({ event }) => event === 'message').length;
  await until('both are under way', () => said(plain) === 8 && said(again) === 8);
  const stoppedAt = Date.now();
  for (const runtime of runtimes) process.kill(runtime, 'SIGSTOP');
  try {
    await plain.ended;
    assert.equal(plain.events.at(-1)?.data.code, 'runtime-lost');
    await sleep(STOPPED_MS - (Date.now() - stoppedAt));
  } finally {
    for (const runtime of runtimes) process.kill(runtime, 'SIGCONT');
  }
  // They are the same processes, registered anew: they run what may start again from the beginning.
  await until('it has begun again', () => said(again) === 8 + 8);
  await say(platform, again.id, { text: 'go on' });
  await again.ended;
  assert.equal(await checkEnded(platform, again), 'result');
  assert.equal(again.events.filter(({ event }) => event === 'start').length, 2);
  assert.equal(await checkEnded(platform, plain), 'runtime-lost');
  const now = [RUNTIME, EXPRESS_RUNTIME].map((name) => platform.pid(name));
  assert.deepEqual(now, runtimes, 'nobody had to restart them');
  await until('what it held on the device is free', async () => (await modelStats(platform)).pages.owned === 0);
});
