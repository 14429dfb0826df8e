import type { Error as WitError } from 'pie:inferlet/types@0.1.0';

/** Error codes: the cases of `error` in wit/types.wit, a closed set that programs may match on. */
export type InferletErrorCode = WitError['tag'];

/** All codes, to tell a host's error from any other thrown value. */
const CODES: ReadonlySet<string> = new Set<InferletErrorCode>([
  'invalid-argument',
  'not-owned',
  'unsupported',
  'not-found',
  'limit-exceeded',
  'context-overflow',
  'dependency-failed',
  'cancelled',
  'deadline-exceeded',
  'terminated',
  'unavailable',
  'closed',
  'internal',
]);

/**
 * A call that the platform, or this library on its behalf, refused or could not finish.
 *
 * @example
 * try {
 *   ctx.fill(prompt);
 * } catch (error) {
 *   if (error instanceof InferletError && error.code === 'context-overflow') return { tooLong: true };
 *   throw error;
 * }
 */
export class InferletError extends Error {
  override readonly name = 'InferletError';
  readonly code: InferletErrorCode;

  constructor(code: InferletErrorCode, message: string) {
    super(message);
    this.code = code;
  }

  /** Converts a WIT `error` value. */
  static of(error: WitError): InferletError {
    return new InferletError(error.tag, error.val);
  }

  /**
   * Converts any caught value. Returns an InferletError as it is. Converts the error of a failed import by its
   * `payload`, a WIT `error`. Any other value becomes an InferletError with the code `internal` and the value's text.
   */
  static from(thrown: unknown): InferletError {
    if (thrown instanceof InferletError) return thrown;
    const payload = typeof thrown === 'object' && thrown !== null && 'payload' in thrown ? thrown.payload : undefined;
    if (isWitError(payload)) return InferletError.of(payload);
    return new InferletError('internal', thrown instanceof Error ? thrown.message : String(thrown));
  }
}

/** The error `context-overflow` of a text that has more tokens than the model's context. */
export class ContextOverflowError extends InferletError {
  /** Tokens that the context would have. */
  readonly tokens: number;
  /** Tokens of the model's context. */
  readonly contextLength: number;

  constructor(message: string, tokens: number, contextLength: number) {
    super('context-overflow', message);
    this.tokens = tokens;
    this.contextLength = contextLength;
  }
}

/**
 * The result of `call`, or undefined when it fails with `code`.
 *
 * @example
 * const ctx = (await unless('not-found', Context.open('rules', { tokens }))) ?? (await learnRules());
 */
export async function unless<T>(code: InferletErrorCode, call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof InferletError && error.code === code) return undefined;
    throw error;
  }
}

/**
 * The text for the invocation's error event. An InferletError and the error of a failed import give their code and message. Any other error gives
 * its name, unless that is just `Error`, and its message. A value that is no error gives its text.
 */
export function describe(thrown: unknown): string {
  if (thrown instanceof InferletError) return `${thrown.code}: ${thrown.message}`;
  if (!(thrown instanceof Error)) return String(thrown);
  const payload = 'payload' in thrown ? thrown.payload : undefined;
  if (isWitError(payload)) return `${payload.tag}: ${payload.val}`;
  return thrown.name === 'Error' ? thrown.message : `${thrown.name}: ${thrown.message}`;
}

function isWitError(value: unknown): value is WitError {
  return (
    typeof value === 'object' &&
    value !== null &&
    'tag' in value &&
    'val' in value &&
    typeof value.tag === 'string' &&
    typeof value.val === 'string' &&
    CODES.has(value.tag)
  );
}

export function check(holds: boolean, name: string, expected: string, got: unknown): void {
  if (!holds) throw new InferletError('invalid-argument', `${name} must be ${expected}, not ${String(got)}.`);
}

/** Throws `invalid-argument` unless `value` is a whole number from `least` to `most`. */
export function checkCount(name: string, value: number, least = 1, most = Number.POSITIVE_INFINITY): void {
  const range = most === Number.POSITIVE_INFINITY ? `${least} or more` : `from ${least} to ${most}`;
  check(Number.isInteger(value) && value >= least && value <= most, name, `a whole number, ${range}`, value);
}
