import { type HandlerError, handlerError } from './errors.ts';

/**
 * The client's count of the pages behind one inferlet's addresses, so that an allocation past the limit is refused at once. The host counts
 * again, exactly: copies made by writes to shared pages are known only there.
 */
export class PageBudget {
  #maxPages: number;
  #poolPages: number;
  /** Page behind each address, named by the address that allocated it; only of addresses that are shared or were. */
  #origins = new Map<number, number>();
  /** Addresses of each shared page that are still held. */
  #sharers = new Map<number, number>();
  #live = new Set<number>();
  held = 0;

  constructor(maxPages: number, poolPages: number) {
    this.#maxPages = maxPages;
    this.#poolPages = poolPages;
  }

  /** Why `count` more pages cannot be had, if they cannot. */
  refuse(count: number): HandlerError | undefined {
    if (count > this.#poolPages) {
      return handlerError('limit-exceeded', `${count} pages were asked and the whole pool has ${this.#poolPages}`);
    }
    if (this.held + count > this.#maxPages) {
      return handlerError(
        'limit-exceeded',
        `${this.held} pages are held and ${count} more were asked; ${this.#maxPages} is the invocation's limit (manifest: limits.pages)`,
      );
    }
    return undefined;
  }

  /** Addresses cost memory too, even when their pages are shared. */
  refuseShare(count: number): HandlerError | undefined {
    if (this.#live.size + count <= MAX_ADDRESSES) return undefined;
    return handlerError('limit-exceeded', `more than ${MAX_ADDRESSES} page addresses`);
  }

  allocate(first: number, count: number): void {
    for (let i = 0; i < count; i++) this.#live.add(first + i);
    this.held += count;
  }

  share(pages: Uint32Array, first: number): void {
    for (let i = 0; i < pages.length; i++) {
      const source = pages[i] as number;
      if (!this.#live.has(source)) continue;
      const origin = this.#origins.get(source) ?? source;
      this.#origins.set(source, origin);
      this.#origins.set(first + i, origin);
      this.#live.add(first + i);
      this.#sharers.set(origin, (this.#sharers.get(origin) ?? 1) + 1);
    }
  }

  free(pages: Uint32Array): void {
    for (const page of pages) {
      if (!this.#live.delete(page)) continue;
      const origin = this.#origins.get(page);
      this.#origins.delete(page);
      const left = origin === undefined ? 0 : (this.#sharers.get(origin) ?? 1) - 1;
      if (origin !== undefined) {
        if (left > 0) this.#sharers.set(origin, left);
        else this.#sharers.delete(origin);
      }
      if (left === 0) this.held--;
    }
  }
}

const MAX_ADDRESSES = 1_048_576;
