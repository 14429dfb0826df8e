import type { z } from '@hono/zod-openapi';
import { clipped } from '#scheduler/functions/schema/compiled.ts';
import type { Problem } from '../schemas/platform.ts';
import { CODES, type CodeEntry, type ErrorCode, type ErrorStatus, RETRYABLE_CODES } from './codes.ts';

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

/** The hint when the deadline of the request has passed, and not the wall time of the function. */
const REQUEST_DEADLINE =
  'Give the request more time with `Cancel-After`, which includes the time in the queue. By default, it has the longest wait that the platform allows plus the wall time of the function.';

/**
 * Headers with the time after which a failed invocation may be tried again, if the failure names one. They do not ask for a retry: the invocation has
 * run, so only the client knows whether it may run twice.
 */
export function retryAfterHeaders(retryAfterMs: unknown): Record<string, string> {
  if (typeof retryAfterMs !== 'number') return {};
  return { 'retry-after': String(Math.ceil(retryAfterMs / 1000)), 'retry-after-ms': String(Math.ceil(retryAfterMs)) };
}

/** The hint for a failed invocation. Where a code has several causes, the `cause` of the `error` event selects the hint. */
export function failureHint(code: ErrorCode, cause: unknown): string {
  return code === 'deadline-exceeded' && cause !== 'wall-time' ? REQUEST_DEADLINE : CODES[code].hint;
}

/** Time after which a client should ask again. It is a guess: the gateway cannot know when the invocation will end. */
const ASK_AGAIN_S = 1;

/** The refusal of a request whose idempotency key belongs to an invocation that has not ended. */
export function inFlight(id: string): GatewayError {
  return new GatewayError('idempotency-in-flight', `The invocation ${id} of this key has not ended.`, {
    hint: `Attach to it (GET /v1/invocations/${id}/events), or ask again.`,
    members: { invocation: id },
    headers: { location: `/v1/invocations/${id}`, 'retry-after': String(ASK_AGAIN_S), 'x-should-retry': 'true' },
  });
}

/** The problem document of an error. `origin` (scheme and host) makes the document's `type` a URL that a browser can open. */
export function toProblem(error: GatewayError, requestId: string, origin: string): Problem {
  return {
    ...error.members,
    type: `${origin}/docs/errors/${error.code}`,
    title: CODES[error.code].title,
    status: error.status,
    detail: error.message,
    code: error.code,
    hint: error.hint,
    ...(error.field === undefined ? {} : { field: error.field }),
    requestId,
    error: openAiError(error),
  };
}

/** The `error` object that OpenAI-style clients read. */
export function openAiError(error: GatewayError): Problem['error'] {
  return {
    message: error.message,
    type: openAiType(error.status),
    code: openAiCode(error.code),
    ...(error.field === undefined ? {} : { param: error.field }),
  };
}

/** Codes for which `x-should-retry` and `Retry-After` tell the client that the same request may succeed. */
export const RETRYABLE: ReadonlySet<ErrorCode> = new Set(RETRYABLE_CODES);

/** Seconds to wait when the error names no time. A supervisor usually restarts a dead process within this time. */
const RETRY_AFTER_S = 1;

export function problemHeaders(error: GatewayError): Record<string, string> {
  const headers: Record<string, string> = { 'content-type': 'application/problem+json', 'cache-control': 'no-store' };
  if (RETRYABLE.has(error.code)) {
    headers['retry-after'] = String(RETRY_AFTER_S);
    headers['retry-after-ms'] = String(RETRY_AFTER_S * 1000);
    headers['x-should-retry'] = 'true';
  } else if (error.status === 409 || error.status === 429 || error.status >= 500) {
    // OpenAI-style clients retry these statuses by themselves. Keep them from running a failed invocation again without being asked.
    headers['x-should-retry'] = 'false';
  }
  return { ...headers, ...error.headers };
}

type Issue = z.core.$ZodIssue;

/** Maximum characters of an unknown field's name that a message shows. */
const MAX_KEY = 100;
/** Prefixes of the messages that zod makes itself. */
const ZOD_MESSAGE = /^(Invalid|Too small|Too big|Unrecognized)/;

const TYPES: Readonly<Record<string, string>> = {
  int: 'a whole number',
  number: 'a number',
  string: 'text',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
};

/** Says what is wrong with a value, in words that follow the name of the value: "must be at least 1". A schema's own message stays as it is. */
export function wordedIssue(issue: Issue | undefined): string {
  if (issue === undefined) return 'breaks its schema';
  if (issue.message !== '' && !ZOD_MESSAGE.test(issue.message)) return issue.message;
  switch (issue.code) {
    case 'invalid_type':
      // Only the message tells that the value is undefined.
      if (issue.message.endsWith('received undefined')) return 'is missing';
      return `must be ${TYPES[issue.expected] ?? issue.expected}`;
    case 'too_small':
      return boundWords(issue.origin, 'least', issue.minimum);
    case 'too_big':
      return boundWords(issue.origin, 'most', issue.maximum);
    case 'invalid_value':
      return `must be one of ${issue.values.map(String).join(', ')}`;
    case 'unrecognized_keys':
      return `has the unknown field ${JSON.stringify(clipped(issue.keys[0] ?? '', MAX_KEY))}`;
    default:
      return 'does not have the form that is documented';
  }
}

function boundWords(origin: string, which: 'least' | 'most', bound: number | bigint): string {
  const isOne = Number(bound) === 1;
  if (origin === 'string' && which === 'least' && isOne) return 'must not be empty';
  if (origin === 'string') return `must have at ${which} ${bound} characters`;
  if (origin === 'array') return `must have at ${which} ${bound} ${isOne ? 'entry' : 'entries'}`;
  return `must be at ${which} ${bound}`;
}

/** The `code` of the `error` object: OpenAI's name where it has one. */
function openAiCode(code: ErrorCode): string {
  const entry: CodeEntry = CODES[code];
  return entry.openAiCode ?? code;
}

/** The `type` of the `error` object for a failure with this status. */
export function openAiType(status: ErrorStatus): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 404) return 'not_found_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}
