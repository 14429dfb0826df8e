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
