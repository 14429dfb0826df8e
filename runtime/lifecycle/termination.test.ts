import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { TestPlatform } from '../testing/platform.ts';

/** Fills pages (an empty one costs nothing to give up), says so, and then does what its input says. */
const HOLDER = `
  import { allocatePages } from 'pie:inferlet/allocate@0.1.0';
  import { step } from 'pie:inferlet/fused@0.1.0';
  import { Queue } from 'pie:inferlet/queue@0.1.0';
  import { models, sleep } from 'pie:inferlet/runtime@0.1.0';
  import { receive, send } from 'pie:inferlet/session@0.1.0';

  const say = (text) => send({ tag: 'text', val: text });

  export async function run(input) {
    const { pages, do: next, more } = JSON.parse(input);
    const queue = new Queue(models()[0].name);
    const outPages = allocatePages(queue, pages);
    const positions = Array.from({ length: pages * 16 }, (_, i) => i);
    const tokens = positions.map((i) => 3 + ((i * 7 + pages * 13) % 90));
    const request = { tokens, positions, inPages: [], outPages, mask: undefined, rows: 0, output: { tag: 'none' } };
    const held = await step(queue, request).read();
    if (held.tag === 'err') throw new Error(held.val.val);
    say('holding');
    if (next === 'spin') for (;;);
    if (next === 'sleep') {
      const outcome = await sleep(100_000).read();
      say(outcome.val.tag);
      for (;;) await sleep(1).read();
    }
    await receive().read();
    allocatePages(queue, more);
    const outcome = await queue.synchronize().read();
    return JSON.stringify(outcome.tag);
  }
`;

describe('an inferlet whose memory a GPU host takes', () => {
  let platform: TestPlatform;
  let version: FunctionVersion;
  before(async () => {
    platform = await TestPlatform.start({ pageCount: 16 });
    const limits = { memoryMb: 16, cpuMs: 20_000, wallMs: 20_000, pages: 16 };
    version = await platform.deploy(HOLDER, { name: 'holder', limits });
  });
  after(() => platform.stop());

  /** Starts an inferlet and waits until it holds its pages; they come in line in the order of their starts. */
  async function hold(wish: { pages: number; do: 'spin' | 'sleep' | 'grow'; more?: number }): Promise<string> {
    const id = await platform.submit(version, wish);
    for await (const { event, data } of platform.scheduler.events.follow(id, 0, AbortSignal.timeout(15_000))) {
      if (event === 'message') return id;
      assert.notEqual(event, 'error', data);
    }
    throw new Error('it ended without holding anything');
  }

  it('ends as terminated with its output so far, whether it waits or spins, and the oldest goes on', async () => {
    const oldest = await hold({ pages: 2, do: 'grow', more: 13 });
    const sleeper = await hold({ pages: 4, do: 'sleep' });
    const spinner = await hold({ pages: 6, do: 'spin' });
    await platform.scheduler.inbox.push(oldest, { text: 'grow' });
    const [grown, slept, spun] = await Promise.all([oldest, sleeper, spinner].map((id) => platform.transcript(id)));
    assert.equal(grown?.end.data.output, 'ok');
    assert.deepEqual(slept?.messages, ['holding', 'terminated']);
    assert.deepEqual(spun?.messages, ['holding']);
    for (const transcript of [slept, spun]) {
      assert.equal(transcript?.end.event, 'error');
      assert.equal(transcript.end.data.code, 'terminated');
      assert.match(transcript.end.data.message ?? '', /\S/);
      assert.ok((transcript.end.data.usage?.kvPagesPeak ?? 0) >= 4);
      const endings = transcript.events.filter(({ event }) => event === 'result' || event === 'error');
      assert.equal(endings.length, 1);
    }
    assert.equal((await platform.scheduler.invocations.get(spinner))?.failure?.code, 'terminated');
    assert.equal(await platform.freePages(), 16);
    assert.deepEqual(platform.errors, []);
  });
});
