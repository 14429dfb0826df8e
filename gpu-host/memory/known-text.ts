import type { PagePrefix } from './identity.ts';
import type { Page } from './pool.ts';
import type { Mapping } from './space.ts';

/**
 * The full pages that a text begins with, and their slots, kept from one call over it to the next: so a call that goes on with a long text looks
 * closely at the last of its pages only. It belongs to the mapping of its first page and lives as long as that; a call takes it from there and
 * has it for itself until it is done.
 */
export class KnownText {
  readonly #pageSize: number;
  readonly #fullBits: number;
  readonly #mappings: Mapping[] = [];
  /** What each page held. A full page's is never changed, so the same object says that the page still holds it. */
  readonly #prefixes: PagePrefix[] = [];
  #slots = new Uint32Array(0);

  constructor({ pageSize, fullBits }: { readonly pageSize: number; readonly fullBits: number }) {
    this.#pageSize = pageSize;
    this.#fullBits = fullBits;
  }

  get mappings(): readonly Mapping[] {
    return this.#mappings;
  }

  /** The last of its pages. */
  get last(): Page | undefined {
    return this.#mappings.at(-1)?.page;
  }

  /** Physical slots of its pages, in order, and after them places for `room` more, which are the caller's to fill. */
  slots(room: number): Uint32Array {
    const count = this.#mappings.length * this.#pageSize;
    if (this.#slots.length < count + room) this.#slots = grown(this.#slots, count, count + room);
    return this.#slots;
  }

  /** Forgets pages that are not as they were (given back, masked, changed, moved), or with which `addresses` does not begin, and all after them. */
  check(addresses: Uint32Array, adapter: string | undefined): void {
    const wanted = this.#prefixes[0]?.adapter === adapter ? Math.min(addresses.length, this.#mappings.length) : 0;
    let same = 0;
    while (same < wanted && this.#isSame(same, addresses[same] as number)) same++;
    this.#mappings.length = same;
    this.#prefixes.length = same;
  }

  #isSame(at: number, wanted: number): boolean {
    const { address, held, masked, page } = this.#mappings[at] as Mapping;
    return (
      address === wanted &&
      held &&
      masked === 0 &&
      page.prefix === this.#prefixes[at] &&
      page.filled === this.#fullBits &&
      page.frame * this.#pageSize === this.#slots[at * this.#pageSize]
    );
  }

  /** Adds the page that follows, which is on the device, if all of it is text; false otherwise. */
  add(mapping: Mapping): boolean {
    const { page, masked } = mapping;
    const { prefix, frame } = page;
    if (masked !== 0 || page.filled !== this.#fullBits || prefix?.known !== this.#pageSize) return false;
    const first = this.#mappings.length * this.#pageSize;
    const slots = this.slots(this.#pageSize);
    for (let slot = 0; slot < this.#pageSize; slot++) slots[first + slot] = frame * this.#pageSize + slot;
    this.#mappings.push(mapping);
    this.#prefixes.push(prefix);
    return true;
  }
}

/** A longer list with the same first `count` values; so much longer that a text which grows by single tokens is rarely copied. */
function grown(values: Uint32Array, count: number, length: number): Uint32Array<ArrayBuffer> {
  const longer = new Uint32Array(length + (count >> 1));
  longer.set(values.subarray(0, count));
  return longer;
}
