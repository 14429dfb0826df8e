/** Wait after the first failed attempt. Each further wait is twice as long: 5 s, 10 s, 20 s … */
const FIRST_WAIT_MS = 5000;
/** The waits between 15 attempts add up to 22.8 hours, so an endpoint may be down for most of a day. */
export const MAX_ATTEMPTS = 15;

/** Wait after the failure of the n-th attempt, counted from 1. */
export function waitAfter(attempt: number, firstWaitMs = FIRST_WAIT_MS): number {
  return firstWaitMs * 2 ** (attempt - 1);
}

/** Outcome of an attempt: the HTTP status of the response, or the reason why there was no response. */
export type Answer = { readonly status: number } | { readonly error: string };

/** `delivered` when the receiver accepted the webhook; `gone` when the receiver wants no further attempt (410 Gone); else `retry`. */
export function verdictOn(answer: Answer): 'delivered' | 'retry' | 'gone' {
  if (!('status' in answer)) return 'retry';
  if (answer.status >= 200 && answer.status < 300) return 'delivered';
  return answer.status === 410 ? 'gone' : 'retry';
}
