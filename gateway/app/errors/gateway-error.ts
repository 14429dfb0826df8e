import { CODES, type ErrorCode, type ErrorStatus } from './codes.ts';

export interface GatewayErrorOptions {
  /** What to do about this occurrence; the code's own hint otherwise. */
  readonly hint?: string | undefined;
  /** The offending field, as a JSON pointer-like path (`/maxTokens`) or the name of a parameter. */
  readonly field?: string | undefined;
  /** Further members of the problem document, such as `invocation`. They never replace the standard ones. */
  readonly members?: Readonly<Record<string, unknown>> | undefined;
  /** Headers of the response, such as `Allow`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Kept for the log, never sent to the client. */
  readonly cause?: unknown;
}

/** The one error that leaves the gateway: a code of the closed set and the words for this occurrence. */
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

  /** Turns anything caught into a gateway error. What is not one already is a fault of ours: its text stays in the log. */
  static from(caught: unknown): GatewayError {
    if (caught instanceof GatewayError) return caught;
    return new GatewayError('internal', 'The platform failed to answer. Its log knows more.', { cause: caught });
  }
}
