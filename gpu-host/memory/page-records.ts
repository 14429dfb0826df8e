import type { PageLayout } from '../protocol/calls.ts';
import { bitCount } from './pool.ts';

/*
 * A page on its way to another host; integers are little-endian:
 *
 *   filled u32 | masked u32 | positions, pageSize × u32 | keys and values, pageBytes
 */

/** Bytes of the two sets of flags, `filled` and `masked`. */
const FLAG_BYTES = 8;

/** Largest position that a host takes from another. */
const MAX_POSITION = 0x7fff_ffff;

/** Bytes of a page's record. */
export function recordBytes({ pageSize, pageBytes }: PageLayout): number {
  return headBytes(pageSize) + pageBytes;
}

/** Writes the flags and positions of a page to `record`. @returns the part of `record` for the keys and values */
export function writeRecord(
  record: Uint8Array,
  { filled, masked, positions }: StoredPage,
  layout: PageLayout,
): Uint8Array {
  const head = new DataView(record.buffer, record.byteOffset, record.byteLength);
  head.setUint32(0, filled >>> 0, true);
  head.setUint32(4, masked >>> 0, true);
  for (let slot = 0; slot < layout.pageSize; slot++) head.setUint32(FLAG_BYTES + slot * 4, positions[slot] ?? 0, true);
  return record.subarray(headBytes(layout.pageSize));
}

/** Pages that came from another host in pieces. All pieces but the last have the same length. */
export class PageRecords {
  readonly pages: number;
  readonly layout: PageLayout;
  readonly #pieceBytes: number;
  readonly #pieces: readonly Uint8Array[];

  /** @param pieces together as long as the records of all pages */
  constructor(pages: number, layout: PageLayout, pieceBytes: number, pieces: readonly Uint8Array[]) {
    this.pages = pages;
    this.layout = layout;
    this.#pieceBytes = pieceBytes;
    this.#pieces = pieces;
  }

  /** The page at `index` without its keys and values. */
  pageAt(index: number): StoredPage {
    const { pageSize } = this.layout;
    const head = this.#copy(index * recordBytes(this.layout), Buffer.alloc(headBytes(pageSize)));
    const positions = new Uint32Array(pageSize);
    for (let slot = 0; slot < pageSize; slot++) positions[slot] = head.readUInt32LE(FLAG_BYTES + slot * 4);
    return { filled: head.readUInt32LE(0), masked: head.readUInt32LE(4), positions };
  }

  /** Copies out the keys and values of pages from `first` on, as many as `into` has room for. */
  readPages(first: number, into: Uint8Array): void {
    const { pageSize, pageBytes } = this.layout;
    for (let i = 0; i * pageBytes < into.length; i++) {
      const from = (first + i) * recordBytes(this.layout) + headBytes(pageSize);
      this.#copy(from, into.subarray(i * pageBytes, (i + 1) * pageBytes));
    }
  }

  #copy<T extends Uint8Array>(from: number, into: T): T {
    for (let done = 0; done < into.length; ) {
      const at = from + done;
      const piece = this.#pieces[Math.floor(at / this.#pieceBytes)];
      const start = at % this.#pieceBytes;
      if (!piece || start >= piece.length) throw new RangeError(`byte ${at} is past the pieces`);
      const part = piece.subarray(start, start + into.length - done);
      into.set(part, done);
      done += part.length;
    }
    return into;
  }
}

/** The filled slots of pages, and one past their largest position. */
export interface Extent {
  readonly tokens: number;
  readonly nextPosition: number;
}

export const NO_EXTENT: Extent = { tokens: 0, nextPosition: 0 };

/** The extent with one more page. For a page that does not fit the layout, the reason instead: a text that calls the page `one`. */
export function withPage(
  { tokens, nextPosition }: Extent,
  page: StoredPage,
  { pageSize }: PageLayout,
): Extent | string {
  const { filled, masked, positions } = page;
  if (pageSize < 32 && (filled | masked) >>> pageSize !== 0) return `one names slots past its ${pageSize}`;
  let next = nextPosition;
  for (let slot = 0; slot < pageSize; slot++) {
    if (!(filled & (1 << slot))) continue;
    const position = positions[slot] as number;
    if (position > MAX_POSITION) return `one has the position ${position}`;
    next = Math.max(next, position + 1);
  }
  return { tokens: tokens + bitCount(filled), nextPosition: next };
}

function headBytes(pageSize: number): number {
  return FLAG_BYTES + pageSize * 4;
}

/** A page as a file holds it, without its keys and values. */
export interface StoredPage {
  readonly filled: number;
  readonly masked: number;
  /** One per slot; those of empty slots have no meaning. */
  readonly positions: Uint32Array;
}
