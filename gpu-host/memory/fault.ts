import type { ModelError } from '../models/errors.ts';
import { type HandlerError, type HandlerErrorTag, handlerError } from '../protocol/errors.ts';
import { unexpected } from '../unexpected.ts';

/**
 * Thrown to refuse a call. The inferlet receives `error` as the call's error. A refused call has changed nothing, with one exception: a `free` that
 * names unknown addresses has freed the others.
 */
export class CallFault extends Error {
  override readonly name = 'CallFault';
  readonly error: HandlerError;
  constructor(error: HandlerError) {
    // Capture no stack trace. A guest can cause thousands of faults, and a trace costs more than the call. The host's stack does not help the guest.
    const usualLimit = Error.stackTraceLimit;
    Error.stackTraceLimit = 0;
    super(error.val);
    Error.stackTraceLimit = usualLimit;
    this.error = error;
  }
}

export function fault(tag: HandlerErrorTag, message: string): CallFault {
  return new CallFault(handlerError(tag, message));
}

/**
 * The fault of a call that depends on an earlier call that failed.
 * @param cause the error of the earlier call
 */
export function dependencyFault(cause: HandlerError): CallFault {
  // The earlier call itself failed because of a dependency. Its error already names the first cause.
  if (cause.tag === 'dependency-failed') return new CallFault(cause);
  return fault(
    'dependency-failed',
    `an earlier call that this one depends on failed (${cause.tag}: ${cause.val}); synchronize reports it and goes on`,
  );
}

/**
 * Thrown when a call must wait. The call is not refused, and has changed nothing. Either the call's inferlet is preempted, or pages of the inferlet
 * are being read from disk. The host makes the call again when the inferlet returns or the pages have arrived.
 */
export class CallHeld extends Error {
  override readonly name = 'CallHeld';
}

/**
 * A family is a root invocation and its children. The scheduler admits only the root, with one limit for the whole
 * family, so the pages of all members count together.
 */
export interface FamilyName {
  readonly name: string;
  /** Attempt of the root invocation. Each attempt is a family of its own, so that pages of an earlier one do not count. */
  readonly epoch: number;
  /** Maximum sum of the members' distinct pages: a page that two members hold counts twice. */
  readonly maxPages: number;
}

/** The holdings of a family on one model. */
export interface Family extends FamilyName {
  heldPages: number;
  members: number;
}

/** The families that have members on one model. */
export class Families {
  /** Families by name and epoch. */
  readonly #families = new Map<string, Family>();

  get size(): number {
    return this.#families.size;
  }

  /** Adds a member to the family of that name and returns the family. */
  join({ name, epoch, maxPages }: FamilyName): Family {
    const key = keyOf(name, epoch);
    let family = this.#families.get(key);
    if (!family) {
      family = { name, epoch, maxPages, heldPages: 0, members: 0 };
      this.#families.set(key, family);
    }
    family.members++;
    return family;
  }

  /** Removes a member that held `pages`. */
  leave(family: Family, pages: number): void {
    family.heldPages -= pages;
    if (--family.members === 0) this.#families.delete(keyOf(family.name, family.epoch));
  }
}

const keyOf = (name: string, epoch: number): string => `${epoch} ${name}`;

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

/** The error of a call that needs files of a model which cannot be read. */
export function unreadable(what: string, error: ModelError): HandlerError {
  const { hint } = error;
  const advice = hint === undefined ? '' : `; ${hint}`;
  return handlerError('unavailable', `${what} cannot be read: ${unexpected(error)}${advice}`);
}
