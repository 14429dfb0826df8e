/** Waits double from here: 5 s, 10 s, 20 s … */
const FIRST_WAIT_MS = 5000;
/** The waits between 15 attempts come to 22.8 hours: an endpoint may be away for a day. */
export const MAX_ATTEMPTS = 15;

/** How long to wait after the n-th attempt, counted from 1, has failed. */
export function waitAfter(attempt: number, firstWaitMs = FIRST_WAIT_MS): number {
  return firstWaitMs * 2 ** (attempt - 1);
}

/** What became of an attempt: an HTTP status, or why there was none. */
export type Answer = { readonly status: number } | { readonly error: string };

/** Whether the receiver has it; `gone` says that no further attempt is wanted. */
export function verdictOn(answer: Answer): 'delivered' | 'retry' | 'gone' {
  if (!('status' in answer)) return 'retry';
  if (answer.status >= 200 && answer.status < 300) return 'delivered';
  return answer.status === 410 ? 'gone' : 'retry';
}
