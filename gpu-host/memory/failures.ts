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

/** Maximum ranges remembered. Past it the oldest range is dropped, and its addresses then count as merely not held. */
const MAX_RANGES = 64;

/** Causes of the failed calls that should have made or filled addresses. Kept until their queue has reported the failure. */
export class Failures {
  #addresses = new Map<number, Failure>();
  #ranges: FailedRange[] = [];

  /** Marks the content of `address` as never computed. The first cause stays. */
  mark(address: number, cause: HandlerError, source: object): void {
    if (!this.#addresses.has(address)) this.#addresses.set(address, { cause, source });
  }

  /** Marks the addresses of an allocation that failed. */
  markRange(first: number, count: number, cause: HandlerError, source: object): void {
    this.#ranges.push({ first, count, cause, source });
    if (this.#ranges.length > MAX_RANGES) this.#ranges.shift();
  }

  /** True when at least one failure is recorded. */
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

  /** Call when the address was given back or written anew. */
  forget(address: number): void {
    if (this.#addresses.size > 0) this.#addresses.delete(address);
  }

  /** Forgets the failures of `source`, or all of them without one. */
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
