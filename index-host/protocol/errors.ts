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

/** The only error of this room that reaches a caller. */
export class IndexError extends Error {
  override readonly name = 'IndexError';
  readonly code: IndexErrorCode;

  constructor(code: IndexErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  static from(error: unknown): IndexError {
    if (error instanceof IndexError) return error;
    const text = error instanceof Error ? error.message : String(error);
    return new IndexError('internal', `the index host has a fault: ${text}`, { cause: error });
  }
}
