/**
 * Why a call of the store failed.
 * `store-unavailable`: Redis did not answer in time; the call may or may not have taken effect, and may be made again.
 * `store-corrupt`: what is stored, or what a script answered, has not the expected shape.
 * `invalid-argument`: the caller broke the contract of the call (a gap in sequence numbers, an unknown version).
 */
export type StoreErrorCode = 'store-unavailable' | 'store-corrupt' | 'invalid-argument';

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
    if (
      /^(ERR|WRONGTYPE|NOSCRIPT|READONLY|OOM|MISCONF)/.test(text) &&
      !text.startsWith('OOM') &&
      !text.startsWith('MISCONF')
    ) {
      return new StoreError('store-corrupt', `Redis refused a command: ${text}`, { cause: error });
    }
    return new StoreError('store-unavailable', `Redis did not answer: ${text}`, { cause: error });
  }
}
