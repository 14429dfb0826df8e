import { MAX_PAGE_ADDRESSES, TOO_MANY_ADDRESSES } from './addresses.ts';
import { type HandlerError, handlerError } from './errors.ts';

/**
 * Pages that several inferlets hold together, by model: the inferlets of one root share its limit. Like `PageBudget` this counts addresses.
 * The host, which gets the family's name and limit, counts the copies as well.
 */
export class SharedPages {
  readonly maxPages: number;
  /** Name of the family; not empty. */
  readonly family: string;
  /** Attempt of the root; set before any of the inferlets is opened. */
  epoch = 0;
  readonly #heldPages = new Map<string, number>();
  readonly #peak = new Map<string, number>();

  /** @param maxPages of all inferlets together, per model */
  constructor(family: string, maxPages: number) {
    this.family = family;
    this.maxPages = maxPages;
  }

  /** Maximum pages held at once so far, by model. */
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

/** Maximum sources of imports that a budget remembers. Pages of a forgotten source count again when another import maps them. */
const MAX_SOURCES = 256;

/**
 * The client's count of the pages behind one inferlet's addresses, so that an allocation past the limit is refused at once. The host counts
 * again, exactly: only it knows the copies made by writes to shared pages, the pages that two names share, and when a name gets new pages.
 */
export class PageBudget {
  #maxPages: number;
  #poolPages: number;
  /** Page behind each address, named by the address that first had it; only for the later addresses of a page. */
  #origins = new Map<number, number>();
  /** Number of held addresses of each shared page. */
  #sharers = new Map<number, number>();
  #liveAddresses = new Set<number>();
  /** First address of the first import from each source; the least recently imported source comes first. */
  #sources = new Map<string, number>();
  #sharedPages: SharedPages | undefined;
  #model: string;
  #heldPages = 0;

  /** @param shared budget shared with other inferlets, counted under `model` */
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

  /** Error when `count` more pages cannot be allocated. */
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

  /** Error when `count` more addresses cannot be made for shared pages. */
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

  /** Adds an address of the page that is named `origin`; counts the page if no address has it. */
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
