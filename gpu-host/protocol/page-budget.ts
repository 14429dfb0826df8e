import { type HandlerError, handlerError } from './errors.ts';

/**
 * Count of the pages that a family (a root invocation and its children) holds on each model: its members share the
 * root's limit. The client counts by the addresses that each member's `PageBudget` knows. The GPU host gets the
 * family's name and limit, and also counts the copies of pages that it makes.
 */
export class SharedPages {
  /** Maximum pages of all inferlets of the family together, on each model; set before any inferlet of the family is opened. */
  maxPages: number;
  /** Name of the family; not empty. */
  readonly family: string;
  /** Attempt of the root invocation; set before any inferlet of the family is opened. */
  epoch = 0;
  readonly #heldPages = new Map<string, number>();
  readonly #peak = new Map<string, number>();

  /** @param maxPages maximum pages of all inferlets of the family together, on each model */
  constructor(family: string, maxPages: number) {
    this.family = family;
    this.maxPages = maxPages;
  }

  /** The most pages that the family has held at once, by model. */
  get peak(): ReadonlyMap<string, number> {
    return this.#peak;
  }

  held(model: string): number {
    return this.#heldPages.get(model) ?? 0;
  }

  add(model: string, count: number): void {
    const heldPages = this.held(model) + count;
    this.#heldPages.set(model, heldPages);
    if (heldPages > (this.#peak.get(model) ?? 0)) this.#peak.set(model, heldPages);
  }
}

/** Maximum sources of imports that a budget remembers. After a source is forgotten, its pages count twice when they are imported once more. */
const MAX_SOURCES = 256;

/**
 * The client's count of the pages behind one inferlet's addresses, so that the client refuses an allocation past the limit without a message to
 * the host. The host counts exactly: only the host knows the copies that writes to shared pages make, the pages that two names share, and when a
 * name gets new pages.
 */
export class PageBudget {
  #maxPages: number;
  #poolPages: number;
  /** For each address that shares a page with an earlier one: that page's origin, the address that had the page first. */
  #origins = new Map<number, number>();
  /** Number of held addresses of each shared page, by the page's origin. */
  #sharers = new Map<number, number>();
  #liveAddresses = new Set<number>();
  /** For each source, the first address of its first import: the origin of its first page. The least recently imported source comes first. */
  #sources = new Map<string, number>();
  #sharedPages: SharedPages | undefined;
  #model: string;
  #heldPages = 0;

  /** @param shared budget of the inferlet's family, in which this budget counts its pages under `model` */
  constructor(maxPages: number, poolPages: number, shared?: SharedPages, model = '') {
    this.#maxPages = maxPages;
    this.#poolPages = poolPages;
    this.#sharedPages = shared;
    this.#model = model;
  }

  get held(): number {
    return this.#heldPages;
  }

  /** Drops all held pages. */
  close(): void {
    this.#count(-this.#heldPages);
    this.#liveAddresses.clear();
    this.#sharedPages = undefined;
  }

  /** Returns the error of an allocation of `count` more pages; undefined when they fit. */
  refuse(count: number): HandlerError | undefined {
    if (count > this.#poolPages) {
      return handlerError('limit-exceeded', `${count} pages were requested, and the whole pool has ${this.#poolPages}`);
    }
    if (this.held + count > this.#maxPages) {
      return handlerError(
        'limit-exceeded',
        `${this.held} pages are held and ${count} more were requested; the invocation's limit is ${this.#maxPages} (manifest: limits.pages)`,
      );
    }
    const shared = this.#sharedPages;
    if (shared && shared.held(this.#model) + count > shared.maxPages) {
      return handlerError(
        'limit-exceeded',
        `the root invocation and its children hold ${shared.held(this.#model)} pages together, and ${count} more were requested; their limit is ${shared.maxPages} (the root's manifest: limits.pages)`,
      );
    }
    return undefined;
  }

  /** Returns the error when `count` more addresses of shared pages are too many; undefined when they fit. */
  refuseShare(count: number): HandlerError | undefined {
    return this.#liveAddresses.size + count <= MAX_PAGE_ADDRESSES ? undefined : TOO_MANY_ADDRESSES;
  }

  allocate(first: number, count: number): void {
    for (let i = 0; i < count; i++) this.#liveAddresses.add(first + i);
    this.#count(count);
  }

  share(pages: Uint32Array, first: number): void {
    for (let i = 0; i < pages.length; i++) {
      const source = pages[i] as number;
      if (this.#liveAddresses.has(source)) this.#add(first + i, this.#origins.get(source) ?? source);
    }
  }

  /** Counts the pages of an import, unless the inferlet still has them from an earlier import of the same `source`. */
  import(source: string, first: number, count: number): void {
    const firstOrigin = this.#sources.get(source) ?? first;
    this.#sources.delete(source);
    this.#sources.set(source, firstOrigin);
    const [oldest] = this.#sources.keys();
    if (this.#sources.size > MAX_SOURCES && oldest !== undefined) this.#sources.delete(oldest);
    for (let i = 0; i < count; i++) this.#add(first + i, firstOrigin + i);
  }

  free(pages: Uint32Array): void {
    for (const page of pages) {
      if (!this.#liveAddresses.delete(page)) continue;
      const origin = this.#origins.get(page) ?? page;
      this.#origins.delete(page);
      const remaining = (this.#sharers.get(origin) ?? 1) - 1;
      if (remaining > 0) {
        this.#sharers.set(origin, remaining);
        continue;
      }
      this.#sharers.delete(origin);
      this.#count(-1);
    }
  }

  /** Adds an address of the page whose origin is `origin`; counts the page if no other address has it. */
  #add(address: number, origin: number): void {
    const holders = this.#sharers.get(origin) ?? (this.#liveAddresses.has(origin) ? 1 : 0);
    this.#liveAddresses.add(address);
    if (holders === 0) this.#count(1);
    if (address === origin) return;
    this.#origins.set(address, origin);
    this.#sharers.set(origin, holders + 1);
  }

  #count(change: number): void {
    this.#heldPages += change;
    this.#sharedPages?.add(this.#model, change);
  }
}

/** Number of possible addresses: an address is one 32-bit word. */
export const ADDRESSES = 0x1_0000_0000;
export const NO_ADDRESSES = handlerError('limit-exceeded', 'the inferlet has used up its addresses on this model');

/** Maximum page addresses that an inferlet holds on one model: an address costs memory even when its page is shared. */
export const MAX_PAGE_ADDRESSES = 1_048_576;
export const TOO_MANY_ADDRESSES = handlerError(
  'limit-exceeded',
  `an inferlet can have at most ${MAX_PAGE_ADDRESSES} page addresses; free some first`,
);

/** Reserves `count` unused page addresses and returns the first; undefined when too few are left. */
export function takePageAddresses(space: { nextPage: number }, count: number): number | undefined {
  const first = space.nextPage;
  if (first + count > ADDRESSES) return undefined;
  space.nextPage += count;
  return first;
}

/** `count` addresses from `first` on. */
export function addresses(first: number, count: number): Uint32Array {
  const list = new Uint32Array(count);
  for (let i = 0; i < count; i++) list[i] = first + i;
  return list;
}
