import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DeviceClient, GpuHostConnection, StepRequest } from '../protocol/client.ts';
import { RUN_WINDOW_TOKENS } from '../protocol/wire.ts';
import { BACKENDS } from '../testing/backends.ts';
import { fill } from '../testing/guest.ts';
import { generate, must, NONE, Oracle, range, startTestHost, type TestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT } from '../testing/workbench.ts';
import { type Watched, watchBackend } from '../testing/wrapped-backend.ts';

const PAGES = 16;

interface Guest {
  readonly inferlet: DeviceClient;
  readonly queue: number;
  readonly causes: string[];
}

function guest(connection: GpuHostConnection, arrival: number): Guest {
  const causes: string[] = [];
  const inferlet = connection.openInferlet({
    id: `inferlet ${arrival}`,
    maxPages: 64,
    arrival,
    onTerminated: ({ cause, retryAfterMs }) => {
      assert.ok(retryAfterMs >= 1000 && retryAfterMs <= 60_000, `retry after ${retryAfterMs} ms`);
      causes.push(cause);
    },
  });
  return { inferlet, queue: inferlet.createQueue('tiny'), causes };
}

/** A step of one token over pages, which keeps no key; by default, the prompt's last token at its position. */
function probeOf(pages: Uint32Array, token = PROMPT.at(-1)!, position = PROMPT.length - 1): StepRequest {
  return {
    tokens: ids(token),
    positions: ids(position),
    inPages: pages,
    outPages: NONE,
    mask: undefined,
    rows: 1,
    output: { tag: 'distributions', val: 3 },
  };
}

function statsOf(host: TestHost) {
  return host.host.stats().models[0]!;
}

test('without room, the newest inferlet is terminated: all its calls get that error, and the older one gets its memory', async () => {
  await using host = await startTestHost({ pageCount: PAGES });
  const connection = await host.connect();
  const older = guest(connection, 1);
  const newer = guest(connection, 2);
  const theirs = must(newer.inferlet.allocatePages(newer.queue, 12));
  must(await fill(newer, theirs, PROMPT));
  const run = newer.inferlet.run(newer.queue, {
    token: 1,
    position: PROMPT.length,
    pages: theirs,
    maxTokens: 60,
    sampler: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 },
    stopTokens: NONE,
  });
  must(await run.next());
  const own = must(older.inferlet.allocatePages(older.queue, 10));
  must(await fill(older, own, PROMPT));
  assert.equal(newer.causes.length, 1);
  assert.match(newer.causes[0]!, /^memory pressure: the newest of 2 inferlets gave way to an earlier invocation$/);
  let last = await run.next();
  while (last.tag === 'ok') last = await run.next();
  assert.equal(last.val.tag, 'terminated');
  assert.equal(tagOf(await newer.inferlet.synchronize(newer.queue)), 'terminated');
  assert.equal(tagOf(newer.inferlet.allocatePages(newer.queue, 1)), 'terminated');
  await newer.inferlet.close();
  assert.equal(newer.causes.length, 1, 'the client was told once');
  assert.equal(statsOf(host).terminations, 1);
  await older.inferlet.close();
  assert.equal(statsOf(host).pages.owned, 0);
});

test('a request of the newest inferlet that does not fit ends it; a request that can never fit ends no inferlet', async () => {
  await using host = await startTestHost({ pageCount: PAGES });
  const connection = await host.connect();
  const older = guest(connection, 1);
  const newer = guest(connection, 2);
  const own = must(older.inferlet.allocatePages(older.queue, 12));
  const expected = must(await fill(older, own, PROMPT));
  const theirs = must(newer.inferlet.allocatePages(newer.queue, 6));
  assert.equal(tagOf(await fill(newer, theirs, PROMPT)), 'terminated');
  assert.deepEqual(newer.causes.length, 1);
  const third = guest(connection, 3);
  third.inferlet.allocatePages(third.queue, 2);
  must(await third.inferlet.synchronize(third.queue));
  must(older.inferlet.allocatePages(older.queue, 4));
  must(await older.inferlet.synchronize(older.queue));
  assert.equal(third.causes.length, 1, 'the oldest may have the whole pool');
  // The inferlet holds the whole pool, so there is no room for the copy.
  const fork = must(older.inferlet.sharePages(older.queue, own));
  assert.equal(tagOf(await fill(older, fork, [4], PROMPT.length)), 'limit-exceeded');
  assert.deepEqual(older.causes, []);
  await older.inferlet.synchronize(older.queue);
  older.inferlet.freePages(older.queue, fork);
  const again = must(await older.inferlet.ask(older.queue, { op: 'step', request: probeOf(own) }));
  assert.deepEqual(
    again.distributions[0]!.tokens,
    expected.distributions[0]!.tokens,
    'the inferlet still has its pages',
  );
  await older.inferlet.close();
});

test('an inferlet that is ended while a batch is built leaves the batch, and its neighbours get the same results', async () => {
  let watched: Watched | undefined;
  await using host = await startTestHost({
    pageCount: PAGES,
    model: { prefixCache: false },
    wrap: (inner) => {
      watched = watchBackend(inner);
      return watched.backend;
    },
  });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const older = guest(connection, 1);
  const newer = guest(connection, 2);
  const own = must(older.inferlet.allocatePages(older.queue, 8));
  must(await fill(older, own, PROMPT));
  const fork = must(older.inferlet.sharePages(older.queue, own));
  const theirs = must(newer.inferlet.allocatePages(newer.queue, 8));
  must(await fill(newer, theirs, PROMPT));
  // The pool is full, and the older inferlet's write to a shared page needs a copy. Both steps arrive in one message, the newer one's first.
  const [dropped, kept] = await Promise.all([
    fill(newer, theirs, [9], PROMPT.length),
    fill(older, fork, [20], PROMPT.length),
  ]);
  assert.equal(tagOf(dropped), 'terminated');
  const { distributions } = must(kept);
  assert.equal(watched?.batches.at(-1)?.length, 1, 'only the step of the older inferlet was computed');
  const expected = await oracle.top([...PROMPT, 20], [...range(0, PROMPT.length + 1)], 1, 3);
  assert.deepEqual([...distributions[0]!.tokens], [...expected.tokens]);
  assert.equal(newer.causes.length, 1);
  await older.inferlet.close();
  const { pages } = statsOf(host);
  assert.equal(pages.free + pages.cached, pages.total);
});

for (const backend of BACKENDS) {
  test(`pages of an inferlet that waits go to swap and come back as they were (${backend})`, async () => {
    await using host = await startTestHost({
      backend,
      pageCount: PAGES,
      model: { swapMemoryBytes: 4096 * 4, swapDiskBytes: 1 << 20, prefixCache: false },
    });
    const connection = await host.connect();
    const older = guest(connection, 1);
    const newer = guest(connection, 2);
    const theirs = must(newer.inferlet.allocatePages(newer.queue, 10));
    must(await fill(newer, theirs, PROMPT));
    must(await fill(newer, theirs, [40], PROMPT.length));
    const probe = { op: 'step', request: probeOf(theirs, 41, PROMPT.length + 1) } as const;
    const whole = must(await newer.inferlet.ask(newer.queue, probe));
    const again = must(newer.inferlet.sharePages(newer.queue, theirs));
    newer.inferlet.send(newer.queue, { op: 'mask-page', page: again[0]!, slots: 0b100 });
    const masked = must(await fill(newer, again, [41], PROMPT.length + 1));
    assert.notDeepEqual(masked, whole, 'a slot is hidden');
    newer.inferlet.setWaiting(true);
    const own = must(older.inferlet.allocatePages(older.queue, 14));
    must(await fill(older, own, PROMPT));
    const { swappedOutPages, idlePages } = statsOf(host);
    assert.ok(swappedOutPages >= 8, 'its pages went to swap');
    assert.ok(swappedOutPages + idlePages >= theirs.length, 'the pages that are still on the device may go as well');
    assert.deepEqual(newer.causes, []);
    older.inferlet.freePages(older.queue, own.subarray(2));
    // The next call ends the wait; the pages that it reads come back.
    newer.inferlet.freePages(newer.queue, again);
    const fork = must(newer.inferlet.sharePages(newer.queue, theirs));
    newer.inferlet.send(newer.queue, { op: 'mask-page', page: fork[0]!, slots: 0b100 });
    assert.deepEqual(must(await fill(newer, fork, [41], PROMPT.length + 1)), masked);
    assert.deepEqual(must(await newer.inferlet.ask(newer.queue, probe)), whole, 'the hidden slot came back, too');
    assert.ok(statsOf(host).swapsIn >= 2);
    await Promise.all([older.inferlet.close(), newer.inferlet.close()]);
    assert.equal(statsOf(host).swappedOutPages, 0);
  });

  test(`a run that waits for its consumer may be swapped out and goes on where it was (${backend})`, async () => {
    await using host = await startTestHost({
      backend,
      pageCount: 80,
      shape: { contextLength: 512 },
      model: { swapMemoryBytes: 1 << 20, prefixCache: false },
    });
    const oracle = await Oracle.of(host.model);
    const connection = await host.connect();
    const newer = guest(connection, 2);
    const older = guest(connection, 1);
    const pages = must(newer.inferlet.allocatePages(newer.queue, 40));
    const run = newer.inferlet.run(newer.queue, {
      token: 1,
      position: 0,
      pages,
      maxTokens: 300,
      sampler: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 },
      stopTokens: NONE,
    });
    // The inferlet reads no tokens, so the run pauses when its window of unread tokens is full.
    while (statsOf(host).decodeTokens < RUN_WINDOW_TOKENS) await new Promise((resolve) => setTimeout(resolve, 2));
    newer.inferlet.setWaiting(true);
    const own = must(older.inferlet.allocatePages(older.queue, 60));
    must(await fill(older, own, new Array(480).fill(9)));
    assert.ok(statsOf(host).swappedOutPages >= 20, 'its pages went to swap');
    // The older inferlet keeps every third page, so that the run's pages come back in other frames.
    older.inferlet.freePages(
      older.queue,
      own.filter((_, i) => i % 3 > 0),
    );
    const made: number[] = [];
    for (let finished: string | undefined; !finished; ) {
      const chunk = must(await run.next());
      made.push(...chunk.tokens);
      finished = chunk.finished;
    }
    assert.equal(made.length, 300);
    assert.deepEqual(made.slice(0, 40), await oracle.greedy([1], 40));
    await newer.inferlet.close();
    const alone = guest(connection, 3);
    assert.deepEqual(made, await generate(alone.inferlet, alone.queue, [1], 300));
    await Promise.all([older, alone].map(({ inferlet }) => inferlet.close()));
  });
}

test('memory that is allocated and freed many times is never lost', async () => {
  await using host = await startTestHost({ pageCount: PAGES });
  const connection = await host.connect();
  for (let round = 0; round < 20; round++) {
    const guests = Array.from({ length: 4 }, (_, i) => guest(connection, i + 1));
    await Promise.all(
      guests.map(async (each) => {
        for (let i = 0; i < 4; i++) {
          const pages = each.inferlet.allocatePages(each.queue, 3);
          if (pages.tag === 'err') return;
          await fill(each, pages.val, PROMPT.slice(0, 4 + i));
        }
      }),
    );
    assert.deepEqual(guests[0]!.causes, [], 'the oldest always has what it asks for');
    await Promise.all(guests.map(({ inferlet }) => inferlet.close()));
    assert.equal(statsOf(host).pages.owned, 0);
  }
  assert.ok(statsOf(host).terminations > 0);
  host.host.engines[0]!.memory.audit();
  // Queue 1 is the inferlet's only one.
  assert.equal(tagOf(await guest(connection, 9).inferlet.synchronize(1)), 'ok');
});
