import type { ErrorStatus } from './code-entry.ts';
import { CODES, type ErrorCode } from './codes.ts';

export interface GatewayErrorOptions {
  /** Remedy for this occurrence; the code's own hint when absent. */
  readonly hint?: string | undefined;
  /** The invalid field: a path like a JSON pointer (`/maxTokens`), or the name of a parameter. */
  readonly field?: string | undefined;
  /** Further members of the problem document, such as `invocation`. They never replace the standard ones. */
  readonly members?: Readonly<Record<string, unknown>> | undefined;
  /** Headers for the response, such as `Allow`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Goes to the log, never to the client. */
  readonly cause?: unknown;
}

/** The only kind of error that clients see: a code of the closed set (`codes.ts`) with a message for this occurrence. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';
  readonly code: ErrorCode;
  readonly hint: string;
  readonly field: string | undefined;
  readonly members: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, message: string, options: GatewayErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.hint = options.hint ?? CODES[code].hint;
    this.field = options.field;
    this.members = options.members ?? {};
    this.headers = options.headers ?? {};
  }

  get status(): ErrorStatus {
    return CODES[this.code].status;
  }

  /** Turns any caught value into a gateway error. An unexpected error becomes `internal`, and only the log shows its text. */
  static from(caught: unknown): GatewayError {
    if (caught instanceof GatewayError) return caught;
    return new GatewayError('internal', 'The platform failed to answer. Its log has the details.', { cause: caught });
  }
}

export function unknownTenant(name: string): GatewayError {
  return new GatewayError('unknown-tenant', `There is no tenant "${name}".`);
}
