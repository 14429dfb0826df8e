/** Tries in a row without success before a request fails. */
export const ATTEMPTS = 5;
/** Wait before the second try. */
export const RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 8_000;

/** True for the statuses of servers that may answer the same request later. */
export function isTemporary(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

/** Wait after a number of failures in a row: doubles up to 8 s. */
export function pauseMs(failures: number, retryDelayMs = RETRY_DELAY_MS): number {
  return Math.min(retryDelayMs * 2 ** (failures - 1), MAX_RETRY_DELAY_MS);
}
