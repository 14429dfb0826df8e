import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { openUnnamedFile, type SlotFile } from '../../memory/swap/store.ts';
import type { GpuHostConnection } from '../../protocol/client.ts';
import { BACKENDS } from '../../testing/backends.ts';
import { fill, type Guest, guest } from '../../testing/guest.ts';
import { must, startTestHost, type TestHost, tagOf } from '../../testing/host.ts';
import { PROMPT } from '../../testing/workbench.ts';

const PAGES = 16;

/** A swap file whose reads on other threads begin when the test says so. */
class HeldReads {
  /** Slots read on the host's thread. */
  readonly read: number[] = [];
  /** Slots read on other threads. */
  readonly fetched: number[] = [];
  readonly written = new Set<number>();
  /** Set to make reads on other threads fail. */
  readError: Error | undefined;
  #open!: () => void;
  readonly #opened = new Promise<void>((resolve) => {
    this.#open = resolve;
  });

  readonly openFile = (directory: string, slotBytes: number): SlotFile => {
    const file = openUnnamedFile(directory, slotBytes);
    return {
      ...file,
      write: (slot, bytes) => {
        this.written.add(slot);
        file.write(slot, bytes);
      },
      read: (slot, into) => {
        this.read.push(slot);
        file.read(slot, into);
      },
      readAsync: async (slot, into) => {
        this.fetched.push(slot);
        await this.#opened;
        if (this.readError) throw this.readError;
        await file.readAsync(slot, into);
      },
    };
  };

  release(): void {
    this.#open();
  }
}

interface Watched extends Guest {
  /** Gets true each time that the host begins to hold the inferlet's calls, and false each time that it lets them go. */
  readonly held: boolean[];
}

interface Swapped extends AsyncDisposable {
  readonly host: TestHost;
  readonly reads: HeldReads;
  /** Inferlet whose pages went to disk while it waited; the test makes it go on. */
  readonly away: Watched;
  /** Inferlet that has kept the first two of `others`, so that frames are free. */
  readonly other: Guest;
  /** Page addresses of `away`. */
  readonly pages: Uint32Array;
  /** Page addresses of `other`. */
  readonly others: Uint32Array;
}

async function startSwapped(backend: (typeof BACKENDS)[number] = 'reference'): Promise<Swapped> {
  const reads = new HeldReads();
  const swap = { swapMemoryBytes: 0, swapDiskBytes: 1 << 20, openSwapFile: reads.openFile };
  const host = await startTestHost({ backend, pageCount: PAGES, model: { ...swap, prefixCache: false } });
  const connection = await host.connect();
  const [other, away] = [guest(connection, 1), watched(connection, 2)];
  const pages = must(away.inferlet.allocatePages(away.queue, 10));
  must(await fill(away, pages, PROMPT));
  away.inferlet.setWaiting(true);
  const others = must(other.inferlet.allocatePages(other.queue, 14));
  must(await fill(other, others, PROMPT));
  assert.ok(statsOf(host).swappedOutPages >= 8, 'the pages are on disk');
  other.inferlet.freePages(other.queue, others.subarray(2));
  return {
    host,
    reads,
    away,
    other,
    pages,
    others,
    async [Symbol.asyncDispose]() {
      // The host waits for its reads when it stops.
      reads.release();
      await host[Symbol.asyncDispose]();
    },
  };
}

function watched(connection: GpuHostConnection, arrival: number): Watched {
  const held: boolean[] = [];
  return { ...guest(connection, arrival, { onHeld: (isHeld) => held.push(isHeld) }), held };
}

async function eventually(isSo: () => boolean): Promise<void> {
  while (!isSo()) await nextTurn();
}

const statsOf = ({ host }: TestHost) => host.stats().models[0]!;

for (const backend of BACKENDS.filter((name) => name === 'reference' || name === 'cuda')) {
  test(`other inferlets go on while pages come from disk, and calls that wait for the pages get the same results (${backend})`, async () => {
    await using swapped = await startSwapped(backend);
    const { reads, away, other, others } = swapped;
    // Only the first two of the ten pages have content.
    const pages = swapped.pages.subarray(0, 2);
    const next = fill(away, pages, [40], PROMPT.length);
    // A second call of the inferlet waits behind the first.
    const afterNext = fill(away, pages, [41], PROMPT.length + 1);
    must(await fill(other, others.subarray(0, 2), [7]));
    must(await fill(other, others.subarray(0, 2), [8], 1));
    assert.ok(reads.fetched.length > 0, 'the pages are being read');
    reads.release();
    const results = [must(await next), must(await afterNext)];
    assert.deepEqual(reads.read, [], 'the thread of the host read no page');
    assert.deepEqual(away.held, [true, false]);
    const writtenCount = reads.written.size;
    away.inferlet.setWaiting(true);
    must(await fill(other, must(other.inferlet.allocatePages(other.queue, 12)), PROMPT));
    assert.equal(reads.written.size, writtenCount, 'the pages that came back had freed their slots on disk');
    results.push(must(await fill(away, pages, [42], PROMPT.length + 2)));
    assert.deepEqual(reads.read, [], 'nor did it when the pages had left and were needed again');
    await using fresh = await startTestHost({ backend, pageCount: PAGES, model: { prefixCache: false } });
    const alone = guest(await fresh.connect(), 1);
    const own = must(alone.inferlet.allocatePages(alone.queue, 10));
    must(await fill(alone, own, PROMPT));
    assert.deepEqual(results, [
      must(await fill(alone, own, [40], PROMPT.length)),
      must(await fill(alone, own, [41], PROMPT.length + 1)),
      must(await fill(alone, own, [42], PROMPT.length + 2)),
    ]);
  });
}

/** Sends two calls at once: the first one reads `text` and fills `own`, and the second one sees only `own`. */
function chain({ inferlet, queue }: Guest, text: Uint32Array, own: Uint32Array) {
  const step = (token: number, position: number, inPages: Uint32Array) =>
    inferlet.ask(queue, {
      op: 'step',
      request: {
        tokens: Uint32Array.of(token),
        positions: Uint32Array.of(position),
        inPages,
        outPages: own,
        mask: undefined,
        rows: 1,
        output: { tag: 'distributions', val: 3 },
      },
    });
  return Promise.all([step(40, PROMPT.length, Uint32Array.of(...text, ...own)), step(41, PROMPT.length + 1, own)]);
}

test('a call does not overtake an earlier call that fills its pages and still waits for pages from disk', async () => {
  await using swapped = await startSwapped();
  const { reads, away, pages } = swapped;
  const answers = chain(away, pages.subarray(0, 2), must(away.inferlet.allocatePages(away.queue, 1)));
  await eventually(() => reads.fetched.length > 0);
  reads.release();
  const results = (await answers).map(must);
  assert.deepEqual(reads.read, [], 'the thread of the host read no page');
  await using fresh = await startTestHost({ pageCount: PAGES, model: { prefixCache: false } });
  const alone = guest(await fresh.connect(), 1);
  const text = must(alone.inferlet.allocatePages(alone.queue, 2));
  must(await fill(alone, text, PROMPT));
  const own = must(alone.inferlet.allocatePages(alone.queue, 1));
  assert.deepEqual(results, (await chain(alone, text, own)).map(must));
});

test('an inferlet that ends while its pages come from disk leaves nothing behind', async () => {
  await using swapped = await startSwapped();
  const { host, reads, away, other, pages, others } = swapped;
  must(
    await away.inferlet.ask(away.queue, {
      op: 'export-pages',
      pages: pages.subarray(0, 4),
      name: 'kept',
      persistent: false,
    }),
  );
  const next = fill(away, pages, [40], PROMPT.length);
  must(await fill(other, others.subarray(0, 2), [7]));
  await away.inferlet.close();
  const { swappedOutPages: before } = statsOf(host);
  reads.release();
  assert.equal(tagOf(await next), 'cancelled');
  must(await fill(other, others.subarray(0, 2), [8], 1));
  assert.equal(statsOf(host).swappedOutPages, before, 'pages of the export stay on disk');
  must(await other.inferlet.ask(other.queue, { op: 'unexport', name: 'kept' }));
  await other.inferlet.close();
  const { pages: counts, swappedOutPages } = statsOf(host);
  assert.deepEqual([counts.free, swappedOutPages], [counts.total, 0]);
});

test('when other threads fail to read pages, the call reads them on the thread of the host', async () => {
  await using swapped = await startSwapped();
  const { reads, away, pages } = swapped;
  reads.readError = new Error('no thread');
  reads.release();
  must(await fill(away, pages, [40], PROMPT.length));
  assert.ok(reads.read.length > 0);
});

test('when the pages of many inferlets return at once and do not all fit, their fetches wait for their turn', async () => {
  const reads = new HeldReads();
  const swap = { swapMemoryBytes: 0, swapDiskBytes: 1 << 20, openSwapFile: reads.openFile };
  await using host = await startTestHost({ pageCount: PAGES, model: { ...swap, prefixCache: false } });
  const connection = await host.connect();
  const text = [...PROMPT, ...PROMPT];
  const asleep: { readonly one: Watched; readonly pages: Uint32Array }[] = [];
  for (let arrival = 1; arrival <= 20; arrival++) {
    const one = watched(connection, arrival);
    const pages = must(one.inferlet.allocatePages(one.queue, 3));
    must(await fill(one, pages, text));
    one.inferlet.setWaiting(true);
    asleep.push({ one, pages });
  }
  // Takes all frames, and gives them back.
  const other = guest(connection, 21);
  const all = must(other.inferlet.allocatePages(other.queue, PAGES));
  must(await fill(other, all, PROMPT));
  await other.inferlet.close();
  const results = asleep.map(({ one, pages }) => fill(one, pages, [40], text.length));
  await eventually(() => asleep.every(({ one }) => one.held.at(-1) === true));
  const atOnce = reads.fetched.length;
  reads.release();
  assert.ok(atOnce > 0 && atOnce <= PAGES, `${atOnce} pages are read at once`);
  for (const result of results) assert.deepEqual(must(await result), must(await results[0]!));
  assert.equal(reads.fetched.length, 3 * asleep.length, 'each page was read once');
  assert.deepEqual(reads.read, [], 'the thread of the host read no page');
});

test('when an inferlet ends whose fetch waits for its turn, the fetches behind it go on', async () => {
  const reads = new HeldReads();
  const swap = { swapMemoryBytes: 0, swapDiskBytes: 1 << 20, openSwapFile: reads.openFile };
  await using host = await startTestHost({ pageCount: PAGES, model: { ...swap, prefixCache: false } });
  try {
    const connection = await host.connect();
    const sleeper = async (arrival: number, count: number) => {
      const one = watched(connection, arrival);
      const pages = must(one.inferlet.allocatePages(one.queue, count));
      // Leaves the last slot of the last page for the next step.
      const text = Array.from({ length: count * 8 - 1 }, (_, i) => PROMPT[i % PROMPT.length] as number);
      must(await fill(one, pages, text));
      one.inferlet.setWaiting(true);
      return { ...one, goOn: () => fill(one, pages, [40], text.length) };
    };
    // The 16 frames do not suffice for the 5 + 12 pages of the first two inferlets.
    const [first, large, last] = [await sleeper(1, 5), await sleeper(2, 12), await sleeper(3, 5)];
    // Takes all frames, and gives them back.
    const other = guest(connection, 4);
    must(await fill(other, must(other.inferlet.allocatePages(other.queue, PAGES)), PROMPT));
    await other.inferlet.close();
    const results: ReturnType<typeof fill>[] = [];
    for (const one of [first, large, last]) {
      results.push(one.goOn());
      await eventually(() => one.held.at(-1) === true);
    }
    assert.equal(reads.fetched.length, 5, 'only the first one reads the disk');
    await large.inferlet.close();
    const deadline = AbortSignal.timeout(240_000);
    await eventually(() => reads.fetched.length === 10 || deadline.aborted);
    assert.equal(reads.fetched.length, 10, 'the last one reads the disk beside the first');
    reads.release();
    const [ofFirst, ofLarge, ofLast] = await Promise.all(results);
    assert.deepEqual(must(ofFirst!), must(ofLast!));
    assert.equal(tagOf(ofLarge!), 'cancelled');
  } finally {
    // The host waits for its reads when it stops.
    reads.release();
  }
});
