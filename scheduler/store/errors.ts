/**
 * Why a call of the store failed.
 * `store-unavailable`: Redis did not answer in time; the call may or may not have taken effect, and may be made again.
 * `store-corrupt`: Redis refused the command, or what is stored has not the expected shape: a fault of the platform.
 * `invalid-argument`: the caller broke the contract of the call (an unknown invocation).
 * `sequence-gap`: an event's number does not follow the last one of its log; see `SequenceGap`.
 * `too-many-waiting`: the tenant has as many invocations in line as it may; nothing was stored.
 */
export type StoreErrorCode =
  | 'store-unavailable'
  | 'store-corrupt'
  | 'invalid-argument'
  | 'sequence-gap'
  | 'too-many-waiting';

/** Answers of a Redis that cannot serve now but may later. */
const NOT_NOW = /^(LOADING|BUSY|OOM|MISCONF|READONLY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS)\b/;
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
const CONNECTION_MESSAGE =
  /connection (is )?clos|command timed out|max retries per request|stream isn't writeable|connect etimedout/i;

/** The one error that the classes of this room throw. */
export class StoreError extends Error {
  readonly code: StoreErrorCode;

  constructor(code: StoreErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'StoreError';
    this.code = code;
  }

  /** Turns anything caught into a `StoreError`; the cause is kept for the log. */
  static from(error: unknown): StoreError {
    if (error instanceof StoreError) return error;
    const text = error instanceof Error ? error.message : String(error);
    if (isConnectionError(error) || NOT_NOW.test(text)) {
      return new StoreError('store-unavailable', `Redis cannot be reached or cannot serve now: ${text}`, {
        cause: error,
      });
    }
    return new StoreError('store-corrupt', `A command to Redis failed: ${text}`, { cause: error });
  }
}

/**
 * An event's number does not follow the last one of its log. With `appendfsync everysec` Redis writes what it has answered for up to two
 * seconds later when the disk is slow; killed before, it comes back without, and the writer sends again what follows `lastSeq`.
 */
export class SequenceGap extends StoreError {
  /** Number of the last event that the log holds, 0 for none. */
  readonly lastSeq: number;

  constructor(message: string, lastSeq: number) {
    super('sequence-gap', message);
    this.lastSeq = lastSeq;
  }
}

/** Whether an error says that the connection to Redis failed: it reconnects by itself, and the calls report it. */
export function isConnectionError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = 'code' in error ? String(error.code) : '';
  return CONNECTION_CODES.includes(code) || CONNECTION_MESSAGE.test(error.message);
}
