import type { Restore, Snapshot, SnapshotMemory } from '../snapshot.ts';

export const PAGE_SIZE = 4;
export const PAGE_BYTES = 24;

export interface TestPage {
  references: number;
  readonly filled: number;
  readonly positions: Uint32Array;
  readonly content: Uint8Array;
}

export interface TestSnapshot extends Snapshot {
  readonly pages: readonly { readonly page: TestPage; readonly masked: number }[];
}

/** Pages with reference counts and bytes, as the registry sees memory. */
export class PageMemory implements SnapshotMemory<TestSnapshot> {
  /** Pages with at least one holder. */
  readonly held = new Set<TestPage>();

  retain(snapshot: TestSnapshot): void {
    for (const { page } of snapshot.pages) {
      page.references++;
      this.held.add(page);
    }
  }

  release(snapshot: TestSnapshot): void {
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

  readPage(snapshot: TestSnapshot, index: number, into: Uint8Array): void {
    into.set((snapshot.pages[index] as { page: TestPage }).page.content);
  }

  readonly restore: Restore<TestSnapshot> = ({ pages, tokens, nextPosition, readPage }) => {
    const made = pages.map(({ filled, masked, positions }, index) => {
      const content = new Uint8Array(PAGE_BYTES);
      readPage(index, content);
      return { page: { references: 0, filled, positions, content }, masked };
    });
    const snapshot = { pages: made, tokens, nextPosition };
    this.retain(snapshot);
    return snapshot;
  };
}

/** A snapshot derived from a seed: partly filled pages, masks, positions that skip, any bytes. Its pages have no holder. */
export function snapshotOf(seed: number, pageCount: number): TestSnapshot {
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
