import { CODES, type ErrorCode, isErrorCode } from '../app/errors/codes.ts';

/** Codes of the API, and what can go wrong before an answer is there. */
export type ClientErrorCode = ErrorCode | 'connection-failed' | 'bad-response';

export interface PieErrorOptions {
  /** HTTP status; 0 when there was no answer, or when the failure came as an event. */
  readonly status?: number;
  readonly hint?: string | undefined;
  readonly requestId?: string | undefined;
  readonly field?: string | undefined;
  /** The invocation that failed or was left behind. */
  readonly invocation?: string | undefined;
  readonly cause?: unknown;
}

/** The one error of this client. */
export class PieError extends Error {
  override readonly name = 'PieError';
  readonly code: ClientErrorCode;
  readonly status: number;
  /** What to do about it. */
  readonly hint: string | undefined;
  /** Find it in the platform's log by this. */
  readonly requestId: string | undefined;
  /** The offending field (JSON pointer) or parameter. */
  readonly field: string | undefined;
  readonly invocation: string | undefined;

  constructor(code: ClientErrorCode, message: string, options: PieErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.status = options.status ?? 0;
    this.hint = options.hint;
    this.requestId = options.requestId;
    this.field = options.field;
    this.invocation = options.invocation;
  }

  /** Whether the same request may well succeed a little later. */
  get retryable(): boolean {
    return RETRYABLE.has(this.code);
  }
}

const RETRYABLE: ReadonlySet<ClientErrorCode> = new Set([
  'connection-failed',
  'runtime-unavailable',
  'store-unavailable',
  'shutting-down',
  'origin-unavailable',
  'too-many-requests',
]);

interface ProblemMembers {
  readonly code?: unknown;
  readonly detail?: unknown;
  readonly title?: unknown;
  readonly hint?: unknown;
  readonly field?: unknown;
  readonly requestId?: unknown;
  readonly invocation?: unknown;
}

/** Longest body that is read for the sake of an error. */
const MAX_PROBLEM_CHARACTERS = 64 * 1024;

/** The error that an answer with an error status stands for. */
export async function errorFromResponse(response: Response): Promise<PieError> {
  const text = (await response.text().catch(() => '')).slice(0, MAX_PROBLEM_CHARACTERS);
  const problem = parseProblem(text);
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
  });
}

/** The error that the data of an `error` event stands for. */
export function errorFromEvent(
  data: { code?: unknown; message?: unknown; hint?: unknown },
  invocation: string,
): PieError {
  const code = isErrorCode(data.code) ? data.code : 'internal';
  return new PieError(code, textOf(data.message) ?? CODES[code].title, {
    hint: textOf(data.hint) ?? CODES[code].hint,
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
