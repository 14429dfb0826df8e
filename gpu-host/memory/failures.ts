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

const contains = ({ first, count }: FailedRange, address: number): boolean =>
  address >= first && address - first < count;

/** Maximum ranges in each list. A further range drops the oldest one, whose addresses then count as not held. */
const MAX_RANGES = 64;

/** Causes of the failed calls that should have made or filled addresses. Kept until their queue has reported the failure. */
export class Failures {
  #addresses = new Map<number, Failure>();
  #ranges: FailedRange[] = [];
  /** The ranges of failed allocations, also after their queue has reported them. */
  #unmade: FailedRange[] = [];

  /** Marks the content of `address` as never computed. The first cause stays. */
  mark(address: number, cause: HandlerError, source: object): void {
    if (!this.#addresses.has(address)) this.#addresses.set(address, { cause, source });
  }

  /** Marks the addresses of an allocation that failed. */
  markRange(first: number, count: number, cause: HandlerError, source: object): void {
    const range = { first, count, cause, source };
    for (const ranges of [this.#ranges, this.#unmade]) {
      ranges.push(range);
      if (ranges.length > MAX_RANGES) ranges.shift();
    }
  }

  /** True for an address whose allocation failed: its owner may free it like any other, before or after the failure is reported. */
  unmade(address: number): boolean {
    return this.#unmade.some((range) => contains(range, address));
  }

  /** True when at least one failure is recorded. */
  get hasAny(): boolean {
    return this.#addresses.size > 0 || this.#ranges.length > 0;
  }

  of(address: number): HandlerError | undefined {
    if (this.#addresses.size > 0) {
      const failure = this.#addresses.get(address);
      if (failure) return failure.cause;
    }
    for (const range of this.#ranges) if (contains(range, address)) return range.cause;
    return undefined;
  }

  /** Call when the address was given back or written anew. */
  forget(address: number): void {
    if (this.#addresses.size > 0) this.#addresses.delete(address);
  }

  /** Forgets the failures that `source` has reported, or all failures if `source` is undefined. */
  clear(source?: object): void {
    if (!source) {
      this.#addresses.clear();
      this.#ranges.length = 0;
      this.#unmade.length = 0;
      return;
    }
    for (const [address, failure] of this.#addresses) if (failure.source === source) this.#addresses.delete(address);
    this.#ranges = this.#ranges.filter((range) => range.source !== source);
  }
}
