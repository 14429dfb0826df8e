import { CODES, type ErrorCode, isErrorCode, RETRYABLE_CODES } from '../app/errors/codes.ts';
import type { QuotaStatus } from '../app/schemas/quotas.ts';

/** Codes of the API, and the client's own codes for an answer that is missing or not one of a gateway. */
type ClientErrorCode = ErrorCode | 'connection-failed' | 'bad-response';

interface PieErrorOptions {
  /** HTTP status; 0 when there was no answer, or when the failure came as an event. */
  readonly status?: number;
  readonly hint?: string | undefined;
  readonly requestId?: string | undefined;
  readonly field?: string | undefined;
  /** The invocation that the error concerns. */
  readonly invocation?: string | undefined;
  readonly successor?: string | undefined;
  readonly quota?: MetQuota | undefined;
  readonly limitHeaders?: Readonly<Record<string, string>> | undefined;
  readonly cause?: unknown;
}

/** The quota that refused a request. */
interface MetQuota extends Pick<QuotaStatus, 'function' | 'limit' | 'used' | 'resetsAt'> {
  readonly quota: string;
}

/** Headers about limits and retry times; a gateway at the edge passes them on unchanged. */
const LIMIT_HEADERS = ['ratelimit-policy', 'ratelimit', 'retry-after', 'retry-after-ms', 'x-should-retry'] as const;

/** The limit headers of an answer. */
export function limitHeadersOf(headers: Headers): Record<string, string> {
  return Object.fromEntries(
    LIMIT_HEADERS.flatMap((name) => {
      const value = headers.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
}

/** The only error class of this client. */
export class PieError extends Error {
  override readonly name = 'PieError';
  readonly code: ClientErrorCode;
  readonly status: number;
  /** The remedy, in words. */
  readonly hint: string | undefined;
  /** Identifies the request in the platform's log. */
  readonly requestId: string | undefined;
  /** The offending field (JSON pointer) or parameter. */
  readonly field: string | undefined;
  readonly invocation: string | undefined;
  /** For the code `superseded`: the id of the invocation that replaced this one. */
  readonly successor: string | undefined;
  /** Set when a quota refused the request. */
  readonly quota: MetQuota | undefined;
  /** The refusal's headers about limits and retry times, by lower-case name. */
  readonly limitHeaders: Readonly<Record<string, string>>;

  constructor(code: ClientErrorCode, message: string, options: PieErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.status = options.status ?? 0;
    this.hint = options.hint;
    this.requestId = options.requestId;
    this.field = options.field;
    this.invocation = options.invocation;
    this.successor = options.successor;
    this.quota = options.quota;
    this.limitHeaders = options.limitHeaders ?? {};
  }

  /** True when the same request may succeed a little later. */
  get retryable(): boolean {
    return RETRYABLE.has(this.code);
  }
}

const RETRYABLE: ReadonlySet<ClientErrorCode> = new Set([...RETRYABLE_CODES, 'connection-failed', 'quota-concurrency']);

interface ProblemMembers {
  readonly code?: unknown;
  readonly detail?: unknown;
  readonly title?: unknown;
  readonly hint?: unknown;
  readonly field?: unknown;
  readonly requestId?: unknown;
  readonly invocation?: unknown;
  readonly successor?: unknown;
  readonly quota?: unknown;
  readonly function?: unknown;
  readonly limit?: unknown;
  readonly used?: unknown;
  readonly resetsAt?: unknown;
}

/**
 * Makes the error of an answer with an error status.
 *
 * @param text the body, if the caller has read it already, with a time limit: the problem document of a failed invocation contains the
 *   invocation's messages, so it can be large
 */
export async function errorFromResponse(response: Response, text?: string): Promise<PieError> {
  const problem = parseProblem(text ?? (await response.text().catch(() => '')));
  const requestId = textOf(problem.requestId) ?? response.headers.get('x-request-id') ?? undefined;
  if (!isErrorCode(problem.code)) {
    return new PieError('bad-response', `The server answered ${response.status} without a problem document.`, {
      status: response.status,
      requestId,
      hint: 'Check that the address is that of a Pie gateway.',
    });
  }
  return new PieError(problem.code, textOf(problem.detail) ?? CODES[problem.code].title, {
    status: response.status,
    hint: textOf(problem.hint) ?? CODES[problem.code].hint,
    requestId,
    field: textOf(problem.field),
    invocation: textOf(problem.invocation),
    successor: textOf(problem.successor),
    quota: quotaOf(problem),
    limitHeaders: limitHeadersOf(response.headers),
  });
}

function quotaOf({ quota, function: fn, limit, used, resetsAt }: ProblemMembers): MetQuota | undefined {
  if (typeof quota !== 'string' || typeof limit !== 'number' || typeof used !== 'number') return undefined;
  return { quota, function: textOf(fn) ?? null, limit, used, resetsAt: textOf(resetsAt) ?? null };
}

/** Makes the error of an `error` event. */
export function errorFromEvent(
  data: { code?: unknown; message?: unknown; hint?: unknown; successor?: unknown },
  invocation: string,
): PieError {
  const code = isErrorCode(data.code) ? data.code : 'internal';
  return new PieError(code, textOf(data.message) ?? CODES[code].title, {
    hint: textOf(data.hint) ?? CODES[code].hint,
    successor: textOf(data.successor),
    invocation,
  });
}

function parseProblem(text: string): ProblemMembers {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
