import type { ZodError } from 'zod';

/** Reasons why a model could not be fetched, read or used. The set is closed: each code has one meaning for scripts and for people. */
export type ModelErrorCode =
  | 'unknown-model'
  | 'invalid-source'
  | 'unsupported-model'
  | 'unsupported-adapter'
  | 'malformed-config'
  | 'malformed-weights'
  | 'missing-tensor'
  | 'wrong-shape'
  | 'malformed-tokenizer'
  | 'no-chat-template'
  | 'invalid-messages'
  | 'missing-file'
  | 'unreachable'
  | 'download-failed'
  | 'access-denied'
  | 'checksum-mismatch'
  | 'cancelled';

/** The error class of this folder. Its message says what happened; its hint, if any, says what the user can do. */
export class ModelError extends Error {
  override readonly name = 'ModelError';
  readonly code: ModelErrorCode;
  readonly hint: string | undefined;

  constructor(code: ModelErrorCode, message: string, options: { hint?: string; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.hint = options.hint;
  }
}

/** The text of a caught value, for a message that names the cause. For the message `fetch failed`, which explains nothing, the text of its cause. */
export function causeText(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  if (cause.message === 'fetch failed' && cause.cause !== undefined) return causeText(cause.cause);
  return cause.message;
}

/** The first problem that a schema found, with its field. */
export function issueText({ issues: [first] }: ZodError): string {
  const field = first?.path.join('.') ?? '';
  return `${field === '' ? '' : `"${field}": `}${first?.message ?? 'invalid'}`;
}
