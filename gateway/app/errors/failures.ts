import { CODES, type ErrorCode } from './codes.ts';

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
