import type { Page, PagePrefix } from './pool.ts';
import { hashTokens } from './prefix/tree.ts';

/**
 * The full pages that a text begins with, and their slots, kept from one call over the text to the next. A call that continues a long text
 * then checks only the last of its pages closely. The mapping of the first page owns this object; a call takes it from there and has
 * exclusive use of it until the call is done.
 */
export class KnownText {
  readonly #pageSize: number;
  readonly #fullBits: number;
  readonly #mappings: Mapping[] = [];
  /** Identity of each page when it was added. A full page's identity never changes, so the same object proves the same content. */
  readonly #prefixes: PagePrefix[] = [];
  #slots = new Uint32Array(0);

  constructor({ pageSize, fullBits }: { readonly pageSize: number; readonly fullBits: number }) {
    this.#pageSize = pageSize;
    this.#fullBits = fullBits;
  }

  get mappings(): readonly Mapping[] {
    return this.#mappings;
  }

  /** The last of the known pages. */
  get last(): Page | undefined {
    return this.#mappings.at(-1)?.page;
  }

  /** Physical slots of the known pages, in order, followed by at least `room` places that the caller fills. */
  slots(room: number): Uint32Array {
    const count = this.#mappings.length * this.#pageSize;
    if (this.#slots.length < count + room) this.#slots = grown(this.#slots, count, count + room);
    return this.#slots;
  }

  /** Drops the first page that was given back, masked, changed or moved, or that differs from `addresses`, and all pages after it. */
  check(addresses: Uint32Array, adapter: string | undefined): void {
    const maxSame = this.#prefixes[0]?.adapter === adapter ? Math.min(addresses.length, this.#mappings.length) : 0;
    let sameCount = 0;
    while (sameCount < maxSame && this.#isSame(sameCount, addresses[sameCount] as number)) sameCount++;
    this.#mappings.length = sameCount;
    this.#prefixes.length = sameCount;
  }

  #isSame(at: number, wanted: number): boolean {
    const { address, isMapped, masked, page } = this.#mappings[at] as Mapping;
    return (
      address === wanted &&
      isMapped &&
      masked === 0 &&
      page.prefix === this.#prefixes[at] &&
      page.filled === this.#fullBits &&
      page.frame * this.#pageSize === this.#slots[at * this.#pageSize]
    );
  }

  /** Adds the next page, which is on the device and unmasked, when all of its slots are text; returns false otherwise. */
  add(mapping: Mapping): boolean {
    const { prefix, frame } = mapping.page;
    if (prefix?.known !== this.#pageSize) return false;
    const first = this.#mappings.length * this.#pageSize;
    const slots = this.slots(this.#pageSize);
    for (let slot = 0; slot < this.#pageSize; slot++) slots[first + slot] = frame * this.#pageSize + slot;
    this.#mappings.push(mapping);
    this.#prefixes.push(prefix);
    return true;
  }
}

/** Copies the first `count` values into a longer list. The slack of half keeps copies rare for a text that grows by single tokens. */
function grown(values: Uint32Array, count: number, length: number): Uint32Array<ArrayBuffer> {
  const longer = new Uint32Array(length + (count >> 1));
  longer.set(values.subarray(0, count));
  return longer;
}

/** Maximum keys of one call. It bounds the time that a long text costs each choice of a batch; most batches compute fewer pages. */
const MAX_KEYS = 64;

/**
 * Computes a key for each whole page of `tokens`, at most `MAX_KEYS`. The tokens follow the page `prefixBefore`, or begin a text. A key stands for
 * the text from its beginning to the end of the page. Equal texts have equal keys. Different texts have equal keys only seldom, but a comparison of
 * tokens must decide before pages are shared.
 */
export function textKeys(
  prefixBefore: PagePrefix | undefined,
  tokens: Uint32Array,
  pageSize: number,
): readonly number[] {
  const count = Math.min(Math.floor(tokens.length / pageSize), MAX_KEYS);
  const keys: number[] = [];
  let key = count > 0 ? keyOf(prefixBefore) : 0;
  for (let index = 0; index < count; index++) {
    key = nextKey(key, tokens.subarray(index * pageSize, (index + 1) * pageSize));
    keys.push(key);
  }
  return keys;
}

/** The key of a full page, whose tokens no longer change; 0 for the beginning of a text. Each page keeps its key. */
function keyOf(page: PagePrefix | undefined): number {
  const unkeyed: PagePrefix[] = [];
  let current = page;
  for (; current && current.key === undefined; current = current.parent) unkeyed.push(current);
  let key = current?.key ?? 0;
  for (const each of unkeyed.reverse()) {
    key = nextKey(key, each.tokens);
    each.key = key;
  }
  return key;
}

/** Mixes a page's tokens into the key of the text before it: a rotation, then a product with a large prime. */
function nextKey(keyBefore: number, tokens: Uint32Array): number {
  return Math.imul(((keyBefore << 5) | (keyBefore >>> 27)) ^ hashTokens(tokens), 0x9e3779b1);
}

/** The page behind an address. */
export interface Mapping {
  readonly address: number;
  page: Page;
  /** A set bit `s` hides slot `s` from calls through this address. */
  masked: number;
  /** True until the address is given back. A `KnownText` may keep this object longer, and checks this flag. */
  isMapped: boolean;
  /** Findings of the last call about the text that begins with this page; undefined while a call uses them. */
  text: KnownText | undefined;
}

/** The pages that a call reads, looked up once: first those of the text that an earlier call has looked up (`text`), then the `rest`. */
export interface ContextPages {
  readonly text: KnownText;
  readonly rest: readonly Mapping[];
}
