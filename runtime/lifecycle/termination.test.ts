import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { InvocationEvent } from '#scheduler/invocations/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { COUNTING, HOLDING } from '../testing/guests.ts';
import { RuntimePlatform } from '../testing/platform.ts';

describe('an inferlet that loses its memory on a GPU host', () => {
  let platform: RuntimePlatform;
  let version: FunctionVersion;
  let restartable: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start({ pageCount: 16 });
    const limits = { memoryMb: 16, cpuMs: 30_000, wallMs: 60_000, pages: 16 };
    // With so few expected pages, the scheduler admits more inferlets than fit.
    const manifest = { limits, expectedPages: 1 };
    version = await platform.deploy(HOLDING, { name: 'holder', ...manifest });
    restartable = await platform.deploy(HOLDING, { name: 'again', ...manifest, restartable: true });
  });
  after(() => platform.stop());

  /** Starts an inferlet and waits until it holds its pages. Of two inferlets, the one that was started first is the older one. */
  async function hold(
    input: { pages: number; do: 'spin' | 'sleep' | 'grow' | 'end'; more?: number },
    deployed = version,
  ): Promise<string> {
    const id = await platform.submit(deployed, input);
    for await (const { event, data } of platform.scheduler.events.follow(id, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') return id;
      assert.notEqual(event, 'error', data);
    }
    throw new Error('the invocation ended before it held its pages');
  }

  it('ends as `terminated`, asleep or computing, and keeps its messages when an older inferlet needs its memory', async () => {
    const pressMemory = async () => {
      // The oldest asks for 13 more pages, 15 of the 16 in all, so both others must give theirs up.
      const oldest = await hold({ pages: 2, do: 'grow', more: 13 });
      const sleeper = await hold({ pages: 4, do: 'sleep' });
      const spinner = await hold({ pages: 6, do: 'spin' });
      await platform.scheduler.inbox.push(oldest, { text: 'grow' });
      const [grown, slept, spun] = await Promise.all([oldest, sleeper, spinner].map((id) => platform.transcript(id)));
      assert.equal(grown?.end.data.output, 'ok');
      return { slept, spun, spinner };
    };
    let { slept, spun, spinner } = await pressMemory();
    // The runtime kills a stopped inferlet after 250 ms. A busy machine may run the sleeper's sandbox too late for its second message.
    for (let retries = 0; retries < 4 && slept?.messages.length === 1; retries++)
      ({ slept, spun, spinner } = await pressMemory());
    // The call that the sleeper waits for fails, and the sleeper sends the error's tag before it is killed. The spinner makes no call.
    assert.deepEqual(slept?.messages, ['holding', 'terminated']);
    assert.deepEqual(spun?.messages, ['holding']);
    for (const transcript of [slept, spun]) {
      assert.equal(transcript?.end.event, 'error');
      assert.equal(transcript.end.data.code, 'terminated');
      const { message, cause, retryAfterMs } = transcript.end.data;
      assert.match(
        String(cause),
        /^memory pressure: the newest of 3 inferlets gave way to an earlier invocation of holder$/,
      );
      assert.ok(message?.includes(String(cause)));
      assert.ok(Number(retryAfterMs) >= 1000 && Number(retryAfterMs) <= 60_000);
      assert.ok((transcript.end.data.usage?.gpuMs ?? 0) > 0);
      assert.ok((transcript.end.data.usage?.pageSeconds ?? 0) > 0);
      assert.ok((transcript.end.data.usage?.kvPagesPeak ?? 0) >= 4);
      const endings = transcript.events.filter(({ event }) => event === 'result' || event === 'error');
      assert.equal(endings.length, 1);
    }
    assert.equal((await platform.scheduler.invocations.get(spinner))?.failure?.code, 'terminated');
    await eventually(async () => (await platform.freePages()) === 16, 'all pages are free');
    assert.deepEqual(platform.errors, []);
  });

  it('restarts if it is restartable, and its log keeps the first output and tells the reason', async () => {
    const oldest = await hold({ pages: 2, do: 'grow', more: 13 });
    const newest = await hold({ pages: 6, do: 'end' }, restartable);
    await platform.scheduler.inbox.push(oldest, { text: 'grow' });
    assert.equal((await platform.transcript(oldest)).end.data.output, 'ok');
    await eventually(
      async () => (await platform.scheduler.events.read(newest, 0)).filter(isMessage).length === 2,
      'the restarted invocation holds its pages',
    );
    await platform.scheduler.inbox.push(newest, { text: 'end' });
    const { events, end } = await platform.transcript(newest);
    assert.equal(end.data.output, 'ended');
    const dataOf = (name: string) => events.filter(({ event }) => event === name).map(({ data }) => JSON.parse(data));
    const names = events.map(({ event }) => event).filter((event) => event !== 'metric');
    assert.deepEqual(names, ['start', 'message', 'log', 'start', 'message', 'result']);
    assert.deepEqual(
      dataOf('start').map(({ attempt }) => attempt),
      [undefined, 2],
    );
    const [{ level, message }] = dataOf('log');
    assert.equal(level, 'warn');
    assert.match(message, /memory pressure: the newest of 2 inferlets gave way to an earlier invocation of holder/);
    const record = await platform.scheduler.invocations.get(newest);
    assert.equal(record?.attempts, 2);
    // Each attempt fills 6 pages of 16 tokens.
    assert.equal(end.data.usage?.inputTokens, 2 * 6 * 16, 'both attempts are counted');
    assert.equal(record.usage?.inputTokens, 2 * 6 * 16);
    assert.deepEqual(platform.errors, []);
  });

  it('ends as `quota-storage` instead of restarting when its tenant may store no more bytes', async () => {
    // A new GPU host has no cached pages of the tests before, which would count for their tenant's share.
    await platform.restartGpuHost();
    await platform.runtime.stop(1000);
    // With a live socket, the restart begins with a write of the attempt's last event, its metrics. Without a live socket, the attempt
    // writes that event before it decides on a restart.
    const liveSocket = `${platform.redis.socket}-live`;
    platform.runtime = await platform.startRuntime({ name: 'runtime-live', liveSocket });
    const { events, inbox, quotas } = platform.scheduler;
    const { manifest } = restartable;
    // Of two tenants, each has a share of 8 pages: the newest inferlet's tenant holds more, and the oldest one's stays within.
    const oldest = await hold({ pages: 2, do: 'grow', more: 6 });
    const newest = await hold({ pages: 12, do: 'end' }, await platform.deploy(HOLDING, manifest, 'acme'));
    await eventually(async () => (await events.read(newest, 0)).some(isMessage), 'its message is in the log');
    const noBytes = { quota: 'redis-bytes', function: null, limit: 0, until: null } as const;
    await quotas.set('acme', noBytes, { author: 'test', reason: '' });
    await inbox.push(oldest, { text: 'grow' });
    const [grown, ended] = await Promise.all([platform.transcript(oldest), platform.transcript(newest)]);
    assert.equal(grown.end.data.output, 'ok');
    assert.equal(ended.end.data.code, 'quota-storage');
    assert.deepEqual(platform.errors, []);
  });

  it('restarts, too, when the GPU host itself was lost and has returned', async () => {
    const limits = { memoryMb: 16, cpuMs: 30_000, wallMs: 60_000, pages: 8 };
    const counting = await platform.deploy(COUNTING, { name: 'counting', limits, expectedPages: 1, restartable: true });
    const id = await platform.submit(counting, { tokens: 40, pauseMs: 50 });
    const countMessages = async () =>
      (await platform.scheduler.events.read(id, 0)).filter(({ event }) => event === 'message').length;
    await eventually(async () => (await countMessages()) > 0, 'the invocation sends messages');
    await platform.restartGpuHost();
    const { events, end } = await platform.transcript(id);
    assert.equal(end.data.output, 40);
    assert.equal(events.filter(({ event }) => event === 'start').length, 2);
    assert.match(events.find(({ event }) => event === 'log')?.data ?? '', /GPU host/);
    assert.deepEqual(platform.errors, []);
  });
});

const isMessage = ({ event }: InvocationEvent): boolean => event === 'message';
