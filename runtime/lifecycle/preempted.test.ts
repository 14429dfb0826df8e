import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { STEPPING } from '../testing/guests.ts';
import { RuntimePlatform, type Transcript } from '../testing/platform.ts';

/** Long enough for the start of an inferlet, and for its preemption, on a machine that stalls for seconds. */
const WALL_MS = 6000;
/** The platform's clock is an hour behind this machine's clock; no time in these tests may depend on the difference. */
const clock = () => Date.now() - 3_600_000;
/**
 * A preempted inferlet returns when its memory is free, or when no other inferlet has a call that can run. To prevent the latter, the busy
 * inferlet keeps twelve calls under way. Each call needs a batch of its own, so some calls always wait, even while the busy inferlet stalls. A
 * step of the device mostly sleeps, so other tests can use the cores.
 */
const gpuModel = {
  swapMemoryMb: 16,
  prefixCache: false,
  maxBatchTokens: 32,
  pace: { stepMs: 100, tokenMs: 0, sequenceMs: 0 },
};

describe('an inferlet that a GPU host has preempted', () => {
  let platform: RuntimePlatform;
  let lasting: FunctionVersion;
  let brief: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start({ pageCount: 16, gpuModel, clock });
    const limits = { memoryMb: 16, cpuMs: 30_000, pages: 16 };
    lasting = await platform.deploy(STEPPING, {
      name: 'lasting',
      limits: { ...limits, wallMs: 120_000 },
      expectedPages: 1,
    });
    const manifest = { name: 'stepping', limits: { ...limits, wallMs: WALL_MS }, expectedPages: 1 };
    brief = await platform.deploy(STEPPING, { ...manifest, grants: { launch: ['stepping'] } });
  });
  after(() => platform.stop());

  /** Starts an inferlet and waits for its first message. */
  async function startAndHear(of: FunctionVersion, input: unknown, deadlineMs?: number): Promise<string> {
    const id = await platform.submit(of, input, deadlineMs);
    for await (const { event, data } of platform.scheduler.events.follow(id, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') return id;
      assert.notEqual(event, 'error', data);
    }
    throw new Error('the invocation ended without a message');
  }

  const tellToEnd = (id: string) => platform.scheduler.inbox.push(id, { text: 'end' });
  const isPreempted = async () => ((await platform.gpuStats())?.preempted ?? 0) > 0;

  /** Starts two inferlets; the older one takes the memory of the newer one and keeps it. */
  async function preempt(input: object, deadlineMs?: number): Promise<{ older: string; newer: string }> {
    // The older inferlet gets its queue position at its submission, before it fills its pages.
    const older = await startAndHear(lasting, { pages: 12, busy: true });
    const newer = await startAndHear(brief, { pages: 6, ...input }, deadlineMs);
    await platform.scheduler.inbox.push(older, { text: 'fill' });
    await eventually(isPreempted, 'the newer one is preempted');
    return { older, newer };
  }

  /** Waits until the invocation's wall time would be over if preemption did not stop it. */
  async function outlast(id: string): Promise<void> {
    const { startedAt } = (await platform.scheduler.invocations.get(id)) ?? {};
    assert.ok(startedAt);
    await sleep(Math.max(0, startedAt + WALL_MS + 500 - Date.now()));
    assert.ok(await isPreempted(), 'the older one keeps the memory');
  }

  const metricOf = ({ events }: Transcript) =>
    JSON.parse(events.find(({ event }) => event === 'metric')?.data ?? '{}') as Record<string, number>;

  it('keeps the wall time that it has left, and its usage has its wall time and its preempted time', async () => {
    const { older, newer } = await preempt({});
    await outlast(newer);
    await tellToEnd(older);
    await eventually(async () => !(await isPreempted()), 'it goes on');
    await tellToEnd(newer);
    const ended = await platform.transcript(newer);
    assert.equal(ended.end.event, 'result', JSON.stringify(ended.end.data));
    const leftMs = Number(ended.end.data.output);
    assert.ok(leftMs > 0 && leftMs < WALL_MS, `${leftMs} ms are left`);
    const { wallMs = Number.NaN } = ended.end.data.usage ?? {};
    const { preemptedMs = 0 } = metricOf(ended);
    assert.ok(wallMs < WALL_MS, `${wallMs} ms of wall time`);
    assert.ok(wallMs + preemptedMs > WALL_MS, `${wallMs} and ${preemptedMs} ms`);
    assert.equal((await platform.transcript(older)).end.event, 'result');
  });

  it('extends the wall time of its parent, too, and both succeed', async () => {
    const { older, newer } = await preempt({ child: true });
    await outlast(newer);
    await tellToEnd(older);
    await eventually(async () => !(await isPreempted()), 'it goes on');
    await tellToEnd(newer);
    const { end } = await platform.transcript(newer);
    assert.equal(end.event, 'result', JSON.stringify(end.data));
    const { left, child } = end.data.output as { left: number; child: { tag: string; val: string } };
    assert.ok(left > 0 && left < WALL_MS);
    assert.equal(child.tag, 'success', JSON.stringify(child));
    assert.ok(Number(child.val) > 0, 'the child has time left, too');
    assert.equal((await platform.transcript(older)).end.event, 'result');
  });

  it('ends at the deadline of the invocation, and when its client cancels it', async () => {
    const first = await preempt({}, WALL_MS + 1500);
    const { end } = await platform.transcript(first.newer);
    assert.equal(end.data.code, 'deadline-exceeded', JSON.stringify(end.data));
    assert.notEqual(end.data.cause, 'wall-time');
    await tellToEnd(first.older);
    await platform.transcript(first.older);
    const second = await preempt({});
    await platform.scheduler.cancel(second.newer, 'by its client');
    assert.equal((await platform.transcript(second.newer)).end.data.code, 'cancelled');
    await tellToEnd(second.older);
    assert.equal((await platform.transcript(second.older)).end.event, 'result');
    await eventually(async () => (await platform.freePages()) === 16, 'the GPU host holds nothing');
    assert.deepEqual(platform.errors, []);
  });
});
