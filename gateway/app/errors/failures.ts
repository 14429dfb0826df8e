import { CODES, type ErrorCode } from './codes.ts';

/** Hint for a deadline of the request, as opposed to the function's wall time. */
const REQUEST_DEADLINE =
  'Give the request more time with `Cancel-After`, which includes the time in the queue. By default, it has the longest wait that the platform allows plus the wall time of the function.';

/** Retry headers of a failure that names a time. The client decides whether to retry, since the invocation has run. */
export function retryAfterHeaders(retryAfterMs: unknown): Record<string, string> {
  if (typeof retryAfterMs !== 'number') return {};
  return { 'retry-after': String(Math.ceil(retryAfterMs / 1000)), 'retry-after-ms': String(Math.ceil(retryAfterMs)) };
}

/** The hint for a failed invocation. Where a code has several causes, the `cause` of the `error` event selects the hint. */
export function failureHint(code: ErrorCode, cause: unknown): string {
  return code === 'deadline-exceeded' && cause !== 'wall-time' ? REQUEST_DEADLINE : CODES[code].hint;
}
