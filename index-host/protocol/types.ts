/*
 * `wit/index.wit` has the same metrics, comparisons and conditions. The index host imports no other top-level folder, so this file declares them
 * again. `runtime/host/services/index-calls.ts` passes values of the types that are made from `wit/index.wit` to the client in this folder, so the compiler
 * checks that both declarations agree.
 */

/** `cosine` compares directions; `dot-product` is for vectors of any length; `euclidean` ranks by distance. */
export const METRICS = ['cosine', 'dot-product', 'euclidean'] as const;
export type Metric = (typeof METRICS)[number];

export type FieldValue = string | number | boolean;

/** Named values of an entry. A list, because a name such as `__proto__` must stay a plain name. */
export type Metadata = readonly (readonly [name: string, value: FieldValue])[];

export const COMPARISONS = ['equal', 'not-equal', 'less', 'at-most', 'greater', 'at-least'] as const;
export type Comparison = (typeof COMPARISONS)[number];

/**
 * A condition on one field. `equal` holds when the field has one of the values; `not-equal` holds when it has none of them, or the entry has no such
 * field. The other comparisons take one text or number, and hold only for fields of the same kind. They order texts by their UTF-8 bytes.
 */
export interface Condition {
  readonly field: string;
  readonly comparison: Comparison;
  readonly values: readonly FieldValue[];
}

export interface Entry {
  readonly id: string;
  readonly vector: Float32Array;
  readonly text: string | null;
  readonly metadata: Metadata;
}

/** A query by vector, by text, or by both. */
export interface Query {
  readonly vector: Float32Array | null;
  readonly text: string | null;
  /** Conditions that all hold for every match. */
  readonly filter: readonly Condition[];
  /** Maximum matches. */
  readonly limit: number;
}

export interface Match {
  readonly id: string;
  /** Larger is better. A query by vector gives the metric's similarity, by text BM25, and by both the sum of 1 / (60 + rank) over both rankings. */
  readonly score: number;
  readonly text: string | null;
  readonly metadata: Metadata;
}

/** Properties of an index that never change. */
export interface Shape {
  readonly name: string;
  readonly dimensions: number;
  readonly metric: Metric;
}

/** Number of entries and bytes: those that an index has, or those that it may have. */
export interface Size {
  readonly entries: number;
  /** Bytes that count for the tenant's limits. */
  readonly bytes: number;
}

export interface IndexStats extends Shape, Size {
  /** The index cannot be read, only dropped; its shape is unknown. */
  readonly isBroken?: true;
  /** The index could not be read yet; the tenant's next call tries again. Its shape is unknown until then. */
  readonly isUnread?: true;
}

/** The bytes of all of a tenant's indexes at one time. */
export interface IndexSum {
  readonly bytes: number;
  /** Id of one run of the index host. */
  readonly life: string;
  /** Orders the sums of one run: a later sum has a larger number. */
  readonly sequence: number;
}

/** Outcome of a write: the number of entries or indexes that it wrote or deleted, and the sum after it. */
export interface IndexWriteOutcome extends IndexSum {
  readonly count: number;
}

/** Codes of errors of indexes; each is a case of the WIT variant `error`. */
export const INDEX_ERROR_CODES = [
  'invalid-argument',
  'not-found',
  'limit-exceeded',
  'cancelled',
  'unsupported',
  'deadline-exceeded',
  'unavailable',
  'internal',
] as const;
export type IndexErrorCode = (typeof INDEX_ERROR_CODES)[number];

const LATE = 'the call took longer than its caller waits; it may have taken effect';
const WITHDRAWN = 'the call was withdrawn; it may have taken effect';

/** The only error of the index host that reaches a caller. */
export class IndexError extends Error {
  override readonly name = 'IndexError';
  readonly code: IndexErrorCode;

  constructor(code: IndexErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** Converts any caught value. The reasons that `AbortSignal.timeout` and a plain `abort` give get codes of their own. */
  static from(error: unknown): IndexError {
    if (error instanceof IndexError) return error;
    // An error of another realm is no instance of this realm's `DOMException`.
    const name = typeof error === 'object' && error !== null && 'name' in error ? error.name : undefined;
    if (name === 'TimeoutError') return new IndexError('deadline-exceeded', LATE, { cause: error });
    if (name === 'AbortError') return new IndexError('cancelled', WITHDRAWN, { cause: error });
    return new IndexError('internal', `the index host has a fault: ${textForTenant(error)}`, { cause: error });
  }
}

/** The message of a file system error names a path of the host, which no tenant may learn. The tenant gets only the code; the log gets the cause. */
function textForTenant(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code, syscall } = error as NodeJS.ErrnoException;
  return typeof code === 'string' && typeof syscall === 'string' ? code : error.message;
}
