import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import { fault } from '../../fault.ts';
import type { StoredPage } from '../../page-records.ts';
import type { TransferBuffer } from '../../transfers.ts';
import type { Requester, Restoration, Snapshot, SnapshotMemory } from '../stored.ts';

export const PAGE_SIZE = 4;
export const PAGE_BYTES = 24;

export interface TestPage {
  references: number;
  filled: number;
  readonly positions: Uint32Array;
  readonly content: Uint8Array;
}

export interface TestSnapshot extends Snapshot {
  readonly pages: readonly { readonly page: TestPage; readonly masked: number }[];
}

/**
 * Pages with reference counts and bytes, as the registry sees memory. A copy from or to a buffer happens as late as the interface allows: at the
 * next `settled` or `release`. Until then, its target holds no valid page.
 */
export class PageMemory implements SnapshotMemory<TestSnapshot> {
  /** Pages with at least one holder. */
  readonly held = new Set<TestPage>();
  /** Number of the next reads that fail, like reads of pages that swap has lost. */
  failingReads = 0;
  /** Number of buffers that were taken and not released. */
  buffers = 0;
  #queued: (() => void)[] = [];

  retain(snapshot: TestSnapshot): void {
    for (const { page } of snapshot.pages) {
      page.references++;
      this.held.add(page);
    }
  }

  release(snapshot: TestSnapshot): void {
    this.copyQueued();
    for (const { page } of snapshot.pages) {
      if (page.references === 0) throw new Error('a page was released more often than it was retained');
      page.references--;
      if (page.references > 0) continue;
      this.held.delete(page);
      // Another holder may own the page from now on.
      page.positions.fill(0xdead);
      page.content.fill(0xdd);
    }
  }

  used(snapshot: TestSnapshot): void {
    for (const { page } of snapshot.pages) assert.ok(page.references > 0, 'a page is used while it is held');
  }

  readPage(snapshot: TestSnapshot, index: number, into: Uint8Array): void {
    const { page } = snapshot.pages[index] as { page: TestPage };
    assert.ok(page.references > 0, 'a page is read while it is held');
    if (this.failingReads > 0) {
      this.failingReads--;
      throw fault('internal', 'swap lost the page');
    }
    into.fill(0xee);
    this.queue(() => into.set(page.content));
  }

  takeBuffer(bytes: number): TransferBuffer {
    this.buffers++;
    return { bytes: new Uint8Array(bytes), release: () => void this.buffers-- };
  }

  async settled(): Promise<void> {
    await setImmediate();
    this.copyQueued();
  }

  queue(copy: () => void): void {
    this.#queued.push(copy);
  }

  copyQueued(): void {
    for (const copy of this.#queued.splice(0)) copy();
  }
}

/** An inferlet that saves and restores. Its turns come after one turn of the event loop, or after as many as `wait` says. */
export class TestRequester implements Requester<TestSnapshot> {
  readonly tenant: string;
  hasEnded = false;
  /** Number of calls of `restore`. */
  restores = 0;
  readonly #memory: PageMemory;
  readonly #wait: () => number;
  readonly #restorations = new Set<TestRestoration>();
  readonly #whenEnded = new Set<() => void>();

  constructor(memory: PageMemory, tenant = 't', wait: () => number = () => 1) {
    this.#memory = memory;
    this.tenant = tenant;
    this.#wait = wait;
  }

  async between(next: () => boolean): Promise<void> {
    do {
      for (let turns = this.#wait(); turns > 0; turns--) await setImmediate();
    } while (next());
  }

  whenEnded(tell: () => void): () => void {
    this.#whenEnded.add(tell);
    return () => this.#whenEnded.delete(tell);
  }

  restore(_owner: string, pages: number): Restoration<TestSnapshot> {
    this.restores++;
    const restoration = new TestRestoration(this.#memory, pages);
    this.#restorations.add(restoration);
    return restoration;
  }

  /** Ends the inferlet, and frees its pages. */
  end(): void {
    this.hasEnded = true;
    for (const restoration of this.#restorations) restoration.end();
    for (const tell of this.#whenEnded) tell();
  }
}

class TestRestoration implements Restoration<TestSnapshot> {
  readonly #memory: PageMemory;
  readonly #heldSnapshot: TestSnapshot;
  readonly #maskByIndex = new Map<number, number>();
  #hasEnded = false;

  constructor(memory: PageMemory, count: number) {
    this.#memory = memory;
    const pages = Array.from({ length: count }, () => ({ page: blankPage(), masked: 0 }));
    this.#heldSnapshot = { pages, tokens: 0, nextPosition: 0 };
    memory.retain(this.#heldSnapshot);
  }

  fill(index: number, { filled, masked, positions }: StoredPage, bytes: Uint8Array): void {
    const page = this.#heldSnapshot.pages[index]?.page;
    assert.ok(
      page && !this.#hasEnded && !this.#maskByIndex.has(index),
      `page ${index} is filled once, while it is held`,
    );
    page.filled = filled;
    page.positions.set(positions);
    this.#memory.queue(() => page.content.set(bytes));
    this.#maskByIndex.set(index, masked);
  }

  finish(tokens: number, nextPosition: number): TestSnapshot {
    const { pages } = this.#heldSnapshot;
    assert.ok(!this.#hasEnded && this.#maskByIndex.size === pages.length, 'a snapshot is finished when it is whole');
    const whole = pages.map(({ page }, i) => ({ page, masked: this.#maskByIndex.get(i) as number }));
    const snapshot = { pages: whole, tokens, nextPosition };
    this.#memory.retain(snapshot);
    return snapshot;
  }

  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#memory.release(this.#heldSnapshot);
  }
}

function blankPage(): TestPage {
  const positions = new Uint32Array(PAGE_SIZE);
  return { references: 0, filled: 0, positions, content: new Uint8Array(PAGE_BYTES) };
}

/** A snapshot derived from a seed: partly filled pages, masks, positions that skip, any bytes. Its pages have no holder. */
export function snapshotOf(seed: number, pageCount: number): TestSnapshot {
  // A linear congruential generator.
  let state = seed | 0;
  const next = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return (state >>> 16) & 0xff;
  };
  let tokens = 0;
  let nextPosition = 0;
  const pages = Array.from({ length: pageCount }, () => {
    const filled = next() & 0xf;
    const positions = Uint32Array.from({ length: PAGE_SIZE }, () => nextPosition + (next() % 3));
    for (let slot = 0; slot < PAGE_SIZE; slot++) {
      if ((filled & (1 << slot)) === 0) continue;
      tokens++;
      nextPosition = Math.max(nextPosition, (positions[slot] as number) + 1);
    }
    const content = Uint8Array.from({ length: PAGE_BYTES }, next);
    return { page: { references: 0, filled, positions, content }, masked: next() & 0xf };
  });
  return { pages, tokens, nextPosition };
}

/** The content of a snapshot without its holders: equal contents are the same bit for bit. */
export function contentsOf({ pages, tokens, nextPosition }: TestSnapshot): unknown {
  return {
    tokens,
    nextPosition,
    pages: pages.map(({ page, masked }) => ({
      masked,
      filled: page.filled,
      positions: [...page.positions],
      content: Buffer.from(page.content).toString('hex'),
    })),
  };
}
