import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { metrics } from '@opentelemetry/api';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import type { InvocationEvent } from '#scheduler/invocations/types.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { durably, losingWrites } from '#scheduler/store/testing/lost-writes.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { RuntimePlatform } from '../testing/platform.ts';

/** An inferlet that repeats each message until it receives `end`. With input `talk`, it holds pages and sends messages forever. */
const TALKER = `
  import { allocatePages } from 'pie:inferlet/allocate@0.1.0';
  import { Queue } from 'pie:inferlet/queue@0.1.0';
  import { models, sleep } from 'pie:inferlet/runtime@0.1.0';
  import { receive, send } from 'pie:inferlet/session@0.1.0';

  const say = (text) => send({ tag: 'text', val: text });

  export async function run(input) {
    if (JSON.parse(input) === 'talk') {
      const queue = new Queue(models()[0].name);
      allocatePages(queue, 4);
      await queue.synchronize().read();
      for (let i = 0; ; i++) {
        say(String(i));
        await sleep(20).read();
      }
    }
    say('ready');
    for (;;) {
      const message = await receive().read();
      if (message.val.val === 'end') return '"done"';
      say(message.val.val);
    }
  }
`;

describe('a runtime after Redis has lost acknowledged writes', () => {
  let platform: RuntimePlatform;
  before(async () => {
    platform = await RuntimePlatform.start();
  });
  after(() => platform.stop());

  function follow(id: string) {
    const seen: InvocationEvent[] = [];
    const ended = (async () => {
      const { events } = platform.scheduler;
      for await (const event of events.follow(id, 0, AbortSignal.timeout(240_000))) seen.push(event);
    })();
    ended.catch(() => undefined);
    return {
      seen,
      ended,
      texts: () => seen.filter(({ event }) => event === 'message').map(({ data }) => textOf(data)),
    };
  }
  const textOf = (data: string) => (JSON.parse(data) as { text: string }).text;

  it('writes the lost events again and ends the invocation with its result', async () => {
    const { redis, scheduler } = platform;
    const version = await platform.deploy(TALKER, { name: 'talker' });
    const { id, seen, ended, texts } = await durably(redis, async () => {
      const id = await platform.submit(version, null);
      const follower = follow(id);
      await eventually(() => follower.texts().length === 1, 'the invocation runs');
      return { id, ...follower };
    });
    await losingWrites(redis, async () => {
      for (const text of ['1', '2', '3']) {
        await scheduler.inbox.push(id, { text });
        await eventually(() => texts().at(-1) === text, `${text} was seen`);
      }
    });
    await scheduler.inbox.push(id, { text: 'end' });
    await ended;
    assert.equal(seen.at(-1)?.event, 'result');
    assert.deepEqual(texts(), ['ready', '1', '2', '3']);
    assert.deepEqual(
      seen.map(({ seq }) => seq),
      seen.map((_, i) => i + 1),
    );
    assert.deepEqual(await scheduler.events.read(id, 0), seen);
    assert.deepEqual(platform.errors, []);
  });

  it('stops an invocation whose record is gone, ends its streams, and continues with others', async () => {
    const { redis, scheduler } = platform;
    const limits = { memoryMb: 16, cpuMs: 20_000, wallMs: 60_000, pages: 4 };
    const version = await platform.deploy(TALKER, { name: 'talker', limits });
    const free = await platform.freePages();
    const { id, ended } = await losingWrites(redis, async () => {
      const id = await platform.submit(version, 'talk');
      const follower = follow(id);
      await eventually(() => follower.texts().length > 2, 'the invocation sends messages');
      return { id, ...follower };
    });
    await assert.rejects(ended, (error) => error instanceof StoreError && error.code === 'invalid-argument');
    assert.equal(await scheduler.invocations.get(id), null);
    await eventually(async () => (await platform.freePages()) === free, 'the pages of the invocation are free');
    const next = await platform.submit(version, null);
    const follower = follow(next);
    await eventually(() => follower.texts().length === 1, 'the next invocation runs');
    await scheduler.inbox.push(next, { text: 'end' });
    await follower.ended;
    assert.equal(follower.seen.at(-1)?.event, 'result');
  });
});

it('the span of a run has the failure and the usage, even if the terminal event could not be written', async () => {
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  const instruments = { meter: metrics.getMeter('none'), tracer: provider.getTracer('test') };
  await using platform = await RuntimePlatform.start({ runtime: { instruments } });
  const { store, inbox, events, invocations } = platform.scheduler;
  const id = await platform.submit(await platform.deploy(TALKER, { name: 'talker' }), null);
  await eventually(
    async () => (await events.read(id, 0)).some(({ event }) => event === 'message'),
    'the invocation runs',
  );
  // Makes further appends fail, including the append of the terminal event: the scripts calculate with this field.
  await store.redis.hset(store.keys.invocation(id), 'familyBytes', 'none');
  await inbox.push(id, { text: 'end' });
  await eventually(
    async () => (await invocations.get(id))?.failure?.code === 'internal',
    'the worker ends the invocation',
  );
  assert.ok(platform.errors.length > 0, 'the runtime reports the error');
  const run = exporter.getFinishedSpans().find(({ name }) => name === 'invocation');
  assert.equal(run?.attributes['error.type'], 'internal');
  assert.ok(Number(run.attributes['pie.usage.cpu_ms']) > 0);
});
