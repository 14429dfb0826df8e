/**
 * Reasons for which a call of the store failed.
 * `not-deployed`: the requested version was removed; nothing was stored.
 * `stale-resolution`: the function's aliases have changed since the version was chosen from a cache; nothing was stored.
 * `store-unavailable`: Redis did not answer in time; the call may or may not have taken effect, and may be made again.
 * The code also reports that the memory of Redis is used up (`StoreError.full`) or that Redis cannot write to its disk (`StoreError.diskFault`); then
 * nothing was stored.
 * `store-corrupt`: Redis refused the command, or stored data has an unexpected shape: a fault of the platform.
 * `invalid-argument`: the caller broke the contract of the call, for instance with the id of an unknown invocation.
 * `sequence-gap`: an event's number does not follow the last one of its log; see `SequenceGap`.
 * `quota-exceeded`: a quota of the tenant or of its function has no room; see `QuotaExceeded`.
 * `stale-attempt`: the attempt that made the call is over, or another one has begun; nothing was stored.
 * `quarantined`: the version crashed its sandbox repeatedly; nothing was stored.
 * `above-memory`: admission could never admit the invocation, since its memory limit exceeds the platform's memory; nothing was stored.
 * `concurrency-key-busy`: the concurrency key has as many unfinished invocations as it may have; nothing was stored.
 * `debounce-keys-full`: the tenant already has as many waiting debounce keys as it may have; nothing was stored.
 * `idempotency-key-reused`: the key was used before, for another function or body; nothing was stored.
 */
export type StoreErrorCode =
  | 'store-unavailable'
  | 'store-corrupt'
  | 'invalid-argument'
  | 'sequence-gap'
  | 'not-deployed'
  | 'stale-resolution'
  | 'quota-exceeded'
  | 'stale-attempt'
  | 'quarantined'
  | 'above-memory'
  | 'concurrency-key-busy'
  | 'debounce-keys-full'
  | 'idempotency-key-reused';

/** Error replies of a Redis that cannot serve now, but may serve later. */
const NOT_NOW = /^(LOADING|BUSY|READONLY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS)\b/;
/** Error reply of a Redis at `maxmemory`. */
const FULL = /^OOM\b/;
/** Error reply of a Redis that could not write its data to disk, with the system's reason if Redis gives one. */
const DISK = /^MISCONF (?:Errors writing to the AOF file: (.+?)(?: script: .*)?$)?/;
/** Codes of errors by which Node reports that a connection failed. */
const CONNECTION_CODES = [
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
];
/** Messages by which ioredis reports a failed connection without a code. */
const CONNECTION_MESSAGE =
  /connection (is )?clos|command timed out|socket timeout|max retries per request|stream isn't writeable|connect etimedout/i;

const FULL_TEXT =
  'The memory of Redis is used up, so it stores nothing more. Delete stored values; or wait until events and files of ended invocations ' +
  'are forgotten (a day after their end, unless `[retention]` in pie.toml says otherwise); or give Redis more memory (`[redis] max_memory_mb` ' +
  'in pie.toml, or `maxmemory` of a Redis of your own).';

/** What an operator does about a Redis that cannot write to its disk. */
export const DISK_REMEDY =
  'Free space on the disk that holds the data of Redis (`redis` in the home of the platform, or `dir` of a Redis of your own). Until then, Redis ' +
  'answers reads and refuses all else.';

/** The error of the store and of the classes that use it. */
export class StoreError extends Error {
  readonly code: StoreErrorCode;
  /** True when Redis refused to store more because its memory is used up. */
  readonly full: boolean;
  /** Why Redis refuses to store more, when it cannot write to its disk: `No space left on device`, for example. Undefined otherwise. */
  readonly diskFault: string | undefined;
  /** True when the store certainly sent nothing of the failed call to Redis. */
  readonly unsent: boolean;

  constructor(
    code: StoreErrorCode,
    message: string,
    options: { cause?: unknown; full?: boolean; diskFault?: string; unsent?: boolean } = {},
  ) {
    super(message, options);
    this.name = 'StoreError';
    this.code = code;
    this.full = options.full ?? false;
    this.diskFault = options.diskFault;
    this.unsent = options.unsent ?? false;
  }

  /** Returns a `StoreError` as it is. Any other caught value becomes the `cause` of a new `StoreError`, for the log. */
  static from(error: unknown): StoreError {
    if (error instanceof StoreError) return error;
    const text = error instanceof Error ? error.message : String(error);
    // The error of a transaction holds the replies to its commands.
    const replies = [text, ...previousErrors(error)];
    if (replies.some((reply) => FULL.test(reply))) {
      return new StoreError('store-unavailable', FULL_TEXT, { cause: error, full: true });
    }
    const refusal = replies.map((reply) => DISK.exec(reply)).find((match) => match !== null);
    if (refusal) {
      const diskFault = refusal[1] ?? 'a snapshot could not be saved';
      const message = `Redis cannot write to its disk (${diskFault}), so it stores nothing more. ${DISK_REMEDY}`;
      return new StoreError('store-unavailable', message, { cause: error, diskFault });
    }
    if (isConnectionError(error) || replies.some((reply) => NOT_NOW.test(reply))) {
      return new StoreError('store-unavailable', `Redis cannot be reached or cannot serve now: ${text}`, {
        cause: error,
      });
    }
    return new StoreError('store-corrupt', `A command to Redis failed: ${text}`, { cause: error });
  }
}

/**
 * An event's number does not follow the last one of its log. With `appendfsync everysec` and a slow disk, Redis writes acknowledged data up
 * to two seconds late. A Redis killed before that comes back without the data, and the writer sends the events after `lastSeq` again.
 */
export class SequenceGap extends StoreError {
  /** Number of the last event that the log holds, 0 for none. */
  readonly lastSeq: number;

  constructor(message: string, lastSeq: number) {
    super('sequence-gap', message);
    this.lastSeq = lastSeq;
  }
}

/** The error for a call of an attempt that is over. */
export function staleAttempt(): StoreError {
  return new StoreError('stale-attempt', 'This attempt of the invocation is over: it can store and send nothing more.');
}

/** Errors that ioredis reports for the commands of a transaction that Redis discarded. */
function previousErrors(error: unknown): string[] {
  if (!(error instanceof Error && 'previousErrors' in error && Array.isArray(error.previousErrors))) return [];
  return error.previousErrors.map((earlier) => (earlier instanceof Error ? earlier.message : String(earlier)));
}

/** True for a failure of the connection to Redis: ioredis reconnects by itself, and the store's calls report the failure. */
export function isConnectionError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = 'code' in error ? String(error.code) : '';
  return CONNECTION_CODES.includes(code) || CONNECTION_MESSAGE.test(error.message);
}
