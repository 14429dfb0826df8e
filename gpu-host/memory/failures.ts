import type { HandlerError } from '../protocol/errors.ts';

interface Failure {
  readonly cause: HandlerError;
  /** The queue whose call failed. */
  readonly source: object;
}

interface FailedRange extends Failure {
  readonly first: number;
  readonly count: number;
}

/** Ranges remembered; past it the oldest is forgotten, and its addresses are then merely not held. */
const MAX_RANGES = 64;

/** Why addresses stand for nothing: the call that should have made or filled them failed. Kept until its queue has been told. */
export class Failures {
  #addresses = new Map<number, Failure>();
  #ranges: FailedRange[] = [];

  /** What `address` holds was never computed. The first cause stays. */
  mark(address: number, cause: HandlerError, source: object): void {
    if (!this.#addresses.has(address)) this.#addresses.set(address, { cause, source });
  }

  /** The addresses of an allocation that failed. */
  markRange(first: number, count: number, cause: HandlerError, source: object): void {
    this.#ranges.push({ first, count, cause, source });
    if (this.#ranges.length > MAX_RANGES) this.#ranges.shift();
  }

  /** Whether there is any. */
  get some(): boolean {
    return this.#addresses.size > 0 || this.#ranges.length > 0;
  }

  of(address: number): HandlerError | undefined {
    if (this.#addresses.size > 0) {
      const failure = this.#addresses.get(address);
      if (failure) return failure.cause;
    }
    for (const range of this.#ranges)
      if (address >= range.first && address - range.first < range.count) return range.cause;
    return undefined;
  }

  /** The address was given back or written anew. */
  forget(address: number): void {
    if (this.#addresses.size > 0) this.#addresses.delete(address);
  }

  /** Forgets what calls of `source` left, or everything. */
  clear(source?: object): void {
    if (!source) {
      this.#addresses.clear();
      this.#ranges.length = 0;
      return;
    }
    for (const [address, failure] of this.#addresses) if (failure.source === source) this.#addresses.delete(address);
    this.#ranges = this.#ranges.filter((range) => range.source !== source);
  }
}
