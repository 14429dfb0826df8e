import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { COUNTING } from '../testing/guests.ts';
import { RuntimePlatform } from '../testing/platform.ts';

const LIMITS = { memoryMb: 16, cpuMs: 20_000, wallMs: 120_000, pages: 64 };
/** Longer than a busy machine stalls the runtime's process: the lease must last until the test suspends the process. */
const LEASE_MS = 4000;

describe('a runtime that was suspended until it lost its lease', () => {
  let platform: RuntimePlatform;
  before(async () => {
    platform = await RuntimePlatform.start({ leaseMs: LEASE_MS });
    await platform.runtime.stop(0);
    platform.scheduler.reaper.start();
  });
  after(() => platform.stop());

  it('writes nothing for its old invocations, releases their resources, and runs a restarted invocation', async () => {
    const { scheduler } = platform;
    const free = await platform.freePages();
    const runtime = await platform.spawnRuntime('frozen');
    const deployed = { name: 'counting', limits: LIMITS };
    const plain = await platform.deploy(COUNTING, deployed);
    const restartableVersion = await platform.deploy(COUNTING, { ...deployed, name: 'again', restartable: true });
    const ids = [
      await platform.submit(plain, { tokens: 600, pauseMs: 100 }),
      // The first attempt of this invocation must still run when the test suspends the process.
      await platform.submit(restartableVersion, { tokens: 60, pauseMs: 100 }),
    ] as const;
    const messages = async (id: string) =>
      (await scheduler.events.read(id, 0)).filter(({ event }) => event === 'message').length;
    await eventually(
      async () => (await Promise.all(ids.map(messages))).every((count) => count > 0),
      'both invocations send messages',
    );
    process.kill(runtime.pid, 'SIGSTOP');
    await eventually(
      async () => (await scheduler.invocations.get(ids[0]))?.status === 'failed',
      'the runtime is declared dead',
    );
    const record = await scheduler.invocations.get(ids[0]);
    const events = await scheduler.events.read(ids[0], 0);
    process.kill(runtime.pid, 'SIGCONT');
    const { events: restartedEvents, end } = await platform.transcript(ids[1]);
    assert.equal(end.event, 'result');
    // The `start` event of a first attempt has no attempt number.
    assert.deepEqual(
      restartedEvents.filter(({ event }) => event === 'start').map(({ data }) => JSON.parse(data).attempt),
      [undefined, 2],
    );
    assert.equal(
      (await scheduler.invocations.get(ids[1]))?.runtimeId?.split('~')[0],
      'frozen',
      'the restarted invocation runs on the same runtime',
    );
    await eventually(async () => (await platform.freePages()) === free, 'all pages are free');
    assert.equal(record?.failure?.code, 'runtime-lost');
    assert.deepEqual(await scheduler.events.read(ids[0], 0), events, 'no event follows the terminal event');
    assert.deepEqual(await scheduler.invocations.get(ids[0]), record);
    await runtime.kill();
  });
});
