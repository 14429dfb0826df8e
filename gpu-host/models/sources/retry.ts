/** Tries in a row without success before a request fails. */
export const ATTEMPTS = 5;
/** Wait before the second try, milliseconds. */
export const RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 8_000;

/** True when a response has a status after which the same request may succeed later. */
export function isTemporary(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

/** Wait after `failures` failures in a row, milliseconds. Each failure doubles the wait, up to 8 s. */
export function pauseMs(failures: number, retryDelayMs = RETRY_DELAY_MS): number {
  return Math.min(retryDelayMs * 2 ** (failures - 1), MAX_RETRY_DELAY_MS);
}
