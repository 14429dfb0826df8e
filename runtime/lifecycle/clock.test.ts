import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { COUNTING } from '../testing/guests.ts';
import { RuntimePlatform } from '../testing/platform.ts';

const HOUR_MS = 3_600_000;
const WALL_MS = 60_000;
/** Quotas and their failure codes. The runtime refuses calls beyond the first quota; the store reports that the second is exceeded. */
const QUOTA_CODES = [
  ['tokens-per-month', 'quota-tokens'],
  ['gpu-ms-per-day', 'quota-gpu-time'],
] as const;

/** An inferlet that returns the time it has left. Unless its input says `alone`, it also launches a child and returns the child's time left. */
const LEFT = `
  import { Child } from 'pie:inferlet/children@0.1.0';
  import { timeLeft } from 'pie:inferlet/runtime@0.1.0';

  export async function run(input) {
    const left = Number(timeLeft());
    if (JSON.parse(input).alone) return JSON.stringify([left]);
    const child = new Child('left', '{"alone":true}');
    const ending = await child.wait().read();
    return JSON.stringify([left, ...JSON.parse(ending.val.val)]);
  }
`;

describe('a machine whose clock is not that of the platform', () => {
  for (const offMs of [-HOUR_MS, HOUR_MS]) {
    it(`counts times by the platform's clock, which is an hour ${offMs > 0 ? 'ahead' : 'behind'}`, async () => {
      const clock = () => Date.now() + offMs;
      const platform = await RuntimePlatform.start({ clock });
      try {
        const limits = { memoryMb: 16, cpuMs: 30_000, pages: 16, wallMs: WALL_MS };
        const version = await platform.deploy(LEFT, { name: 'left', limits, grants: { launch: ['left'] } });
        const { end } = await platform.transcript(await platform.submit(version, {}));
        assert.equal(end.event, 'result', JSON.stringify(end.data));
        const left = end.data.output as number[];
        assert.equal(left.length, 2);
        for (const ms of left) assert.ok(ms > 0 && ms <= WALL_MS, `${JSON.stringify(left)} ms are left`);
        const counting = await platform.deploy(COUNTING, { name: 'counting', limits });
        for (const [quota, code] of QUOTA_CODES) {
          const note = { author: 'test', reason: 'test' };
          const setLimit = (limit: number | null) =>
            platform.scheduler.quotas.set('default', { quota, function: null, limit, until: null }, note);
          assert.equal(await setLimit(1_000_000), 'ok');
          const [use] = await platform.scheduler.quotas.status('default');
          assert.equal(await setLimit(Math.ceil(use?.used ?? 0) + 1), 'ok');
          // With pauses, the runtime reports the usage while the inferlet runs, also on a fast machine.
          const stopped = (await platform.invoke(counting, { tokens: 100, pauseMs: 1 })).end.data;
          assert.equal(stopped.code, code, JSON.stringify(stopped));
          const resetsAt = Date.parse(/it resets at (\S+)\.$/.exec(stopped.message ?? '')?.[1] ?? '');
          // A time by this machine's clock would be wrong by an hour.
          const wrongMs = Number(stopped.retryAfterMs) - (resetsAt - clock());
          assert.ok(Math.abs(wrongMs) < HOUR_MS / 2, JSON.stringify(stopped));
          assert.equal(await setLimit(null), 'ok');
        }
        // Admission compares the time at which the load was read with the times of its claims, which are by the platform's clock.
        const load = async () => (await platform.scheduler.runtimes.list())[0]?.load?.models?.[0];
        await eventually(async () => (await load()) !== undefined, 'the load of the GPU host is reported');
        const { readAt = Number.NaN } = (await load()) ?? {};
        assert.ok(Math.abs(readAt - clock()) < HOUR_MS / 2, `read ${readAt - clock()} ms after the platform's time`);
      } finally {
        await platform.stop();
      }
    });
  }
});

it('a slow launch takes nothing from the time that an inferlet has left', async (t) => {
  let aheadMs = 0;
  // The test moves the platform's clock by more than the wall time. The lease is longer, so that the runtime does not lose it.
  await using platform = await RuntimePlatform.start({ clock: () => Date.now() + aheadMs, leaseMs: 4 * WALL_MS });
  const limits = { memoryMb: 16, cpuMs: 30_000, pages: 16, wallMs: WALL_MS };
  const version = await platform.deploy(LEFT, { name: 'left', limits });
  const { launcher } = platform.runtime;
  const launch = launcher.launch.bind(launcher);
  t.mock.method(launcher, 'launch', async (...request: Parameters<typeof launch>) => {
    const launched = await launch(...request);
    // Moves the clock as if the launch had taken longer than the wall time.
    aheadMs = WALL_MS + 1000;
    return launched;
  });
  const { end } = await platform.invoke(version, { alone: true });
  assert.equal(end.event, 'result', JSON.stringify(end.data));
  assert.equal(aheadMs, WALL_MS + 1000);
  const [left = 0] = end.data.output as number[];
  assert.ok(left > 0 && left <= WALL_MS, `${left} ms are left`);
});
