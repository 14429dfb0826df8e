import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GpuHostConnection, InferletOptions, StepResult } from '../protocol/client.ts';
import { SharedPages } from '../protocol/client.ts';
import { type Guest, guest } from '../testing/guest.ts';
import { GREEDY, generate, must, range, startTestHost, type TestHost } from '../testing/host.ts';

/*
 * In each test, the calls of one batch need frames when the host prepares the batch, because their pages were swapped out while their inferlets
 * waited.
 */

const PAGES = 16;
const SIZE = 8;

interface Holder extends Guest {
  readonly pages: Uint32Array;
  readonly text: Uint32Array;
}

/** Sends a step over the text's inputs from `from` on. */
function step({ inferlet, queue, pages, text }: Holder, from: number): Promise<StepResult> {
  const made = inferlet.ask(queue, {
    op: 'step',
    request: {
      tokens: text.subarray(from),
      positions: range(from, text.length),
      mask: undefined,
      inPages: pages,
      outPages: pages,
      rows: 1,
      output: { tag: 'sample', val: GREEDY },
    },
  });
  return made.then(must);
}

/** Opens inferlets, and records when the host begins and stops to hold their calls. */
class Scene {
  readonly holdChanges: string[] = [];
  readonly #connection: GpuHostConnection;

  constructor(connection: GpuHostConnection) {
    this.#connection = connection;
  }

  open(name: string, arrival: number, options: Partial<InferletOptions> = {}): Guest {
    const onHeld = (isHeld: boolean) => this.holdChanges.push(`${name} ${isHeld ? 'waits' : 'goes on'}`);
    return guest(this.#connection, arrival, { id: name, onHeld, ...options });
  }
}

/** Fills all slots of `count` pages but the last, and lets the host swap the pages out when others need room. */
async function fill(owner: Guest, count: number, first: number): Promise<Holder> {
  const pages = must(owner.inferlet.allocatePages(owner.queue, count));
  const text = Uint32Array.from({ length: count * SIZE }, (_, i) => (first + i * 7) % 90);
  await step({ ...owner, pages, text: text.subarray(0, -1) }, 0);
  owner.inferlet.setWaiting(true);
  return { ...owner, pages, text };
}

/** Allocates `taken` pages, which costs waiting inferlets their frames, and then frees all but `kept` of these pages. */
async function squeeze({ inferlet, queue }: Guest, taken: number, kept: number): Promise<Uint32Array> {
  const pages = must(inferlet.allocatePages(queue, taken));
  inferlet.freePages(queue, pages.slice(kept));
  must(await inferlet.synchronize(queue));
  return pages.slice(0, kept);
}

/** Index of the text's last input, which `fill` leaves out. */
function lastOf({ text }: Holder): number {
  return text.length - 1;
}

async function decodeAlone(connection: GpuHostConnection, { text }: Holder): Promise<number[]> {
  const alone = guest(connection, 99);
  const tokens = await generate(alone.inferlet, alone.queue, [...text], 1);
  await alone.inferlet.close();
  return tokens;
}

const swapping = (prefixCache: boolean): Promise<TestHost> =>
  startTestHost({ pageCount: PAGES, pageSize: SIZE, model: { swapMemoryBytes: 1 << 18, prefixCache } });

test('of two calls of a batch, the call of the older inferlet gets memory first, even when it came last', async () => {
  await using host = await swapping(false);
  const connection = await host.connect();
  const scene = new Scene(connection);
  const [oldest, older, newer] = [scene.open('oldest', 1), scene.open('older', 2), scene.open('newer', 3)];
  const [six, eight] = [await fill(older, 6, 1), await fill(newer, 8, 2)];
  // The 12 pages that remain are enough for either call, but not for both.
  await squeeze(oldest, PAGES, 4);
  const [newerStep, olderStep] = [step(eight, lastOf(eight)), step(six, lastOf(six))];
  assert.deepEqual([...(await olderStep).tokens], await decodeAlone(connection, six));
  await oldest.inferlet.close();
  await older.inferlet.close();
  assert.deepEqual([...(await newerStep).tokens], await decodeAlone(connection, eight));
  assert.deepEqual(scene.holdChanges, ['newer waits', 'newer goes on']);
});

test('pages that a call of the batch uses stay where they are when a later call of its family is held', async () => {
  await using host = await swapping(false);
  const connection = await host.connect();
  const scene = new Scene(connection);
  const [oldest, last] = [scene.open('oldest', 1), scene.open('last', 3)];
  const sharedPages = new SharedPages('root', PAGES);
  const [parent, child] = [scene.open('parent', 2, { sharedPages }), scene.open('child', 2, { sharedPages })];
  const [four, six, other] = [await fill(parent, 4, 1), await fill(child, 6, 2), await fill(last, 4, 3)];
  // The parent no longer waits, so the squeeze takes none of its pages.
  parent.inferlet.setWaiting(false);
  await squeeze(oldest, 12, 10);
  const [first, held, next] = [step(four, lastOf(four)), step(six, lastOf(six)), step(other, lastOf(other))];
  assert.deepEqual([...(await first).tokens], await decodeAlone(connection, four));
  await oldest.inferlet.close();
  assert.deepEqual([...(await held).tokens], await decodeAlone(connection, six));
  await Promise.all([parent, child].map(({ inferlet }) => inferlet.close()));
  assert.deepEqual([...(await next).tokens], await decodeAlone(connection, other));
  assert.deepEqual(scene.holdChanges.slice(0, 2), ['child waits', 'last waits']);
});

test('a call that computes pages for the oldest inferlet gets memory before the calls of other older inferlets', async () => {
  await using host = await swapping(true);
  const connection = await host.connect();
  const scene = new Scene(connection);
  const [older, between, newer] = [scene.open('older', 1), scene.open('between', 2), scene.open('newer', 3)];
  const eight = await fill(between, 8, 1);
  // A page without content needs a frame as well when a call writes it.
  const pages = must(newer.inferlet.allocatePages(newer.queue, 6));
  newer.inferlet.setWaiting(true);
  const ownPages = await squeeze(older, PAGES, 4);
  // Six pages; the older inferlet asks for the first four.
  const text = range(1, 49);
  const [computing, other, waiting] = [
    step({ ...newer, pages, text }, 0),
    step(eight, lastOf(eight)),
    step({ ...older, pages: ownPages, text: text.subarray(0, 32) }, 0),
  ];
  const [computed, waited] = await Promise.all([computing, waiting]);
  assert.ok(waited.cachedTokens >= 24, `${waited.cachedTokens} tokens came from the newer inferlet`);
  assert.equal(computed.cachedTokens, 0);
  await Promise.all([older, newer].map(({ inferlet }) => inferlet.close()));
  await other;
  assert.deepEqual(scene.holdChanges, ['between waits', 'between goes on']);
});
