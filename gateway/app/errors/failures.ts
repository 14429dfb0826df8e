import { CODES, type ErrorCode } from './codes.ts';

/** Where a deadline of the request passed, and not the function's wall time. */
const REQUEST_DEADLINE =
  'Give the request more time: its `Cancel-After` counts the time in line too. Without one it has the wall time of the function and the time that the platform lets it wait.';

/** What to do about an invocation that failed: by what its `error` event names as the cause, where a code has several. */
export function failureHint(code: ErrorCode, cause: unknown): string {
  return code === 'deadline-exceeded' && cause !== 'wall-time' ? REQUEST_DEADLINE : CODES[code].hint;
}
