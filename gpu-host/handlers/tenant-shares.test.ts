import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fill, type Guest, guest } from '../testing/guest.ts';
import { must, range, startTestHost, type TestHost, tagOf } from '../testing/host.ts';

const PAGES = 32;
const PAGE_SLOTS = 8;
/** Room in swap for a few pages. */
const SWAP = { swapMemoryBytes: 1 << 14 };

const statsOf = (host: TestHost) => host.host.stats().models[0]!;

/** Fills pages with copies of one page, which needs only one step. */
async function hoard(own: Guest, count: number): Promise<string> {
  const { inferlet, queue } = own;
  const pages = must(inferlet.allocatePages(queue, count));
  const [first = 0, ...rest] = pages;
  const filled = await fill(own, Uint32Array.of(first), Array.from(range(1, 1 + PAGE_SLOTS)));
  if (filled.tag !== 'ok') return tagOf(filled);
  for (const destination of rest)
    inferlet.send(queue, {
      op: 'copy-slots',
      source: first,
      sourceOffset: 0,
      destination,
      destinationOffset: 0,
      count: PAGE_SLOTS,
      shift: 0,
    });
  const synchronized = await inferlet.synchronize(queue);
  return tagOf(synchronized);
}

test('beside a tenant that fills pool and swap with idle pages, a newcomer of another tenant gets its share and none of it ends', async () => {
  await using host = await startTestHost({ pageCount: PAGES, model: { ...SWAP, prefixCache: false } });
  const connection = await host.connect();
  const hoarders: Guest[] = [];
  for (let arrival = 1; arrival <= 12; arrival++) {
    const one = guest(connection, arrival, { tenant: 'hoarder' });
    hoarders.push(one);
    const outcome = await hoard(one, 8);
    one.inferlet.setWaiting(true);
    if (outcome !== 'ok') break;
  }
  assert.ok(statsOf(host).pages.free < 8, 'the last hoarder ended because swap is full, and gave its pages back');
  assert.equal(statsOf(host).terminations, 1);
  const causes: string[] = [];
  const small = guest(connection, 100, { tenant: 'small', onTerminated: ({ cause }) => causes.push(cause) });
  const own = must(small.inferlet.allocatePages(small.queue, 14));
  must(await fill(small, own, Array.from(range(1, 90))));
  // While the small tenant holds its pages, the hoarder takes what it can get.
  for (const one of hoarders.slice(0, 3)) void fill(one, must(one.inferlet.allocatePages(one.queue, 20)), [1, 2, 3]);
  must(await fill(small, own, [7], 89));
  assert.deepEqual(causes, []);
  await small.inferlet.close();
});

test('a loop that allocates and frees nearly all pages neither empties the prefix cache of another tenant nor ends it, and goes on itself', async () => {
  await using host = await startTestHost({ pageCount: PAGES, model: SWAP });
  const connection = await host.connect();
  const prompt = Array.from(range(1, 1 + 6 * PAGE_SLOTS));
  const answer = async (arrival: number): Promise<void> => {
    const small = guest(connection, arrival, { tenant: 'small' });
    must(await fill(small, must(small.inferlet.allocatePages(small.queue, 7)), prompt));
    await small.inferlet.close();
  };
  await answer(1);
  const churner = guest(connection, 2, { tenant: 'churner' });
  let isOver = false;
  let rounds = 0;
  const churn = (async () => {
    for (; !isOver; rounds++) {
      const pages = must(churner.inferlet.allocatePages(churner.queue, PAGES - 8));
      churner.inferlet.freePages(churner.queue, pages);
      must(await churner.inferlet.synchronize(churner.queue));
    }
  })();
  for (let i = 0; i < 5; i++) {
    const { hitTokens } = statsOf(host).prefix;
    await answer(10 + i);
    assert.ok(statsOf(host).prefix.hitTokens - hitTokens >= 5 * PAGE_SLOTS, 'the prompt has left the cache');
  }
  isOver = true;
  await churn;
  assert.ok(rounds > 0);
  assert.equal(statsOf(host).terminations, 0);
  await churner.inferlet.close();
});
