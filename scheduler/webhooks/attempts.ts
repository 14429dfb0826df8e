/** Wait after the first failed attempt. Each further wait is twice as long: 5 s, 10 s, 20 s … */
const FIRST_WAIT_MS = 5000;
/** The waits between 15 attempts add up to 22.8 hours, so an endpoint may be down for most of a day. */
export const MAX_ATTEMPTS = 15;

/** Longest wait that a receiver may ask for. The output of an invocation is kept for a day by default. */
const MAX_ASKED_WAIT_MS = 6 * 3_600_000;

/** Wait after the failure of the n-th attempt, counted from 1. A receiver may ask for a longer wait (`askedWait`), but for none that is shorter. */
export function waitAfter(attempt: number, firstWaitMs = FIRST_WAIT_MS, askedMs = 0): number {
  return Math.max(firstWaitMs * 2 ** (attempt - 1), Math.min(askedMs, MAX_ASKED_WAIT_MS));
}

/** The three forms of a date in HTTP (RFC 9110, section 5.6.7); all are in UTC, and the oldest does not say so. */
const HTTP_DATE =
  /^(?:\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT|\w{6,9}, \d{2}-\w{3}-\d{2} \d{2}:\d{2}:\d{2} GMT|\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})$/;

/** The wait that the header `Retry-After` asks for: a number of seconds, or a date. 0 without one, and for a date in the past. */
export function askedWait(retryAfter: string | undefined, nowMs: number): number {
  const text = retryAfter?.trim() ?? '';
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1000;
  if (!HTTP_DATE.test(text)) return 0;
  const at = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`);
  return Number.isNaN(at) ? 0 : Math.max(0, at - nowMs);
}

/** Outcome of an attempt: the HTTP status of the response and its header `Retry-After`, or the reason why there was no response. */
export type Answer = { readonly status: number; readonly retryAfter?: string } | { readonly error: string };

/** `delivered` when the receiver accepted the webhook; `gone` when the receiver wants no further attempt (410 Gone); else `retry`. */
export function verdictOn(answer: Answer): 'delivered' | 'retry' | 'gone' {
  if (!('status' in answer)) return 'retry';
  if (answer.status >= 200 && answer.status < 300) return 'delivered';
  return answer.status === 410 ? 'gone' : 'retry';
}
