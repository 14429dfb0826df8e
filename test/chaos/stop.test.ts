import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { RUNTIME } from '#infra/runtimes.ts';
import { createKeys } from '#scheduler/keys.ts';
import { openConnection } from '#scheduler/store/connection.ts';
import { modelStats } from '#test/harness/deploy.ts';
import { say } from '#test/harness/events.ts';
import { type Platform, until } from '#test/harness/platform.ts';
import { checkEnded, messageCount, startCount, watch } from './invocations.ts';
import { startPlatform } from './kill-runs.ts';
import { platformProcesses, signalAll } from './processes.ts';

/** Longer than a lease, and than the silence that the supervisor allows a runtime. */
const PAUSE_MS = 5000;
/**
 * Time by which the watching processes resume before the others. It is shorter than a lease but allows several rounds of a reaper and several checks
 * by the supervisor.
 */
const WATCHERS_AHEAD_MS = 1000;

let platform: Platform;
before(async () => {
  platform = await startPlatform();
});
after(() => platform?.[Symbol.asyncDispose]());

/** All logs of the platform's processes. */
function logs({ home }: Platform): string {
  const folder = path.join(home, 'logs');
  return readdirSync(folder)
    .map((file) => readFileSync(path.join(folder, file), 'utf8'))
    .join('\n');
}

/** The invocation sends eight tokens and then waits for a message. */
const INPUT = { tokens: 40, listenAt: 8 };

test('a pause of the whole machine beyond any lease ends no invocation and replaces no process', async () => {
  const both = await Promise.all([
    watch(platform, { mark: 'paused', ...INPUT }, { restartable: false }),
    watch(platform, { mark: 'paused-again', ...INPUT }, { restartable: true }),
  ]);
  await until('both invocations run', () => both.every((each) => messageCount(each) === INPUT.listenAt));
  const processesBefore = new Map(platform.processes);
  const pids = platformProcesses(platform.supervisorPid);
  assert.ok(pids.length >= 6, `${pids.length} processes`);
  signalAll(pids, 'SIGSTOP');
  await sleep(PAUSE_MS);
  // The processes that watch others resume first: the runtime and the GPU host are still silent, and the leases have expired.
  const watchers = pids.filter((pid) => ![RUNTIME, 'gpu-host-1'].some((name) => platform.pid(name) === pid));
  signalAll(watchers, 'SIGCONT');
  await sleep(WATCHERS_AHEAD_MS);
  signalAll(pids, 'SIGCONT');
  for (const { id } of both) await say(platform, id, { text: 'go on' });
  for (const each of both) {
    await each.ended;
    assert.equal(await checkEnded(platform, each), 'result');
    assert.equal(startCount(each), 1);
  }
  assert.deepEqual(new Map(platform.processes), processesBefore, 'no process was replaced');
});

test('a runtime that is stopped beyond its lease, but not beyond the limit of its supervisor, loses nothing', async () => {
  const watched = await watch(platform, { mark: 'late', ...INPUT }, { restartable: false });
  await until('the invocation runs', () => messageCount(watched) === INPUT.listenAt);
  const keys = createKeys();
  const redis = openConnection(path.join(platform.home, 'run/redis.sock'));
  try {
    const [runtime = ''] = await redis.hkeys(keys.runtimes);
    const processesBefore = new Map(platform.processes);
    const pid = platform.pid(RUNTIME);
    process.kill(pid, 'SIGSTOP');
    try {
      // Ends the lease at once: the supervisor kills a process that is stopped for 3 s.
      await redis.multi().del(keys.alive(runtime)).zadd(`${keys.looks}:checks`, 0, runtime).exec();
      const record = new RegExp(`has not renewed its lease.*runtime=${runtime} .*look=stopped`);
      await until('the reaper says why it waits', () => record.test(logs(platform)));
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await until('the lease holds again', async () => (await redis.exists(keys.alive(runtime))) === 1);
    assert.deepEqual(new Map(platform.processes), processesBefore, 'no process was replaced');
  } finally {
    redis.disconnect();
  }
  await say(platform, watched.id, { text: 'go on' });
  await watched.ended;
  assert.equal(await checkEnded(platform, watched), 'result');
  assert.equal(startCount(watched), 1);
});

test('a stopped runtime is replaced; a restartable invocation runs again, and another ends as runtime-lost', async () => {
  const plain = await watch(platform, { mark: 'plain', ...INPUT }, { restartable: false });
  const restartable = await watch(platform, { mark: 'again', ...INPUT }, { restartable: true });
  await until('both invocations run', () =>
    [plain, restartable].every((each) => messageCount(each) === INPUT.listenAt),
  );
  const death = platform.event((line) => line.kind === 'died' && line.name === RUNTIME);
  const restarted = platform.restarted(RUNTIME);
  process.kill(platform.pid(RUNTIME), 'SIGSTOP');
  assert.match(String((await death).why), /^its event loop stood still for \d+\.\d s/);
  await restarted;
  // Both attempts have sent their messages.
  await until('the restartable invocation runs again', () => messageCount(restartable) === 2 * INPUT.listenAt);
  await say(platform, restartable.id, { text: 'go on' });
  await Promise.all([plain.ended, restartable.ended]);
  assert.equal(await checkEnded(platform, restartable), 'result');
  assert.equal(startCount(restartable), 2);
  assert.equal(await checkEnded(platform, plain), 'runtime-lost');
  const { message } = plain.events.at(-1)?.data ?? {};
  assert.match(
    String(message),
    /\(runtime-1\): it ended: its event loop stood still for \d+\.\d s, so it was killed\. /,
  );
  const records = logs(platform)
    .split('\n')
    .filter((line) => line.includes(plain.id));
  const ofRuntime = records.filter((line) =>
    /a runtime is lost; .* runtime=runtime-1~\w+ .*silentMs=[1-9]\d{3}/.test(line),
  );
  assert.equal(ofRuntime.length, 1, records.join('\n'));
  const ofEnd = records.filter((line) => line.includes('code=runtime-lost'));
  assert.equal(ofEnd.length, 1, records.join('\n'));
  assert.match(ofEnd[0] ?? '', /tenant=default .*figures=\{"runtime":"runtime-1~\w+","silentMs":[1-9]\d{3}[,}]/);
  await until('the pages of the lost runtime are free', async () => (await modelStats(platform)).pages.owned === 0);
});

test('a stopped gateway is replaced and serves the next invocation', async () => {
  const restarted = platform.restarted('gateway');
  process.kill(platform.pid('gateway'), 'SIGSTOP');
  await restarted;
  const watched = await watch(platform, { mark: 'after', tokens: 4 }, { restartable: false });
  await watched.ended;
  assert.equal(await checkEnded(platform, watched), 'result');
});
