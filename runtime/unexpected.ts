import { toldText } from '#scheduler/policies/told-text.ts';

/** Shortest time between two logged failures: one fault may fail many calls. */
const LOG_EVERY_MS = 10_000;
let lastLoggedMs = Number.NEGATIVE_INFINITY;

/** Logs a failure that no caller has caused, with its paths. Returns its text for the caller, without them. */
export function unexpected(caught: unknown): string {
  const nowMs = performance.now();
  if (nowMs - lastLoggedMs >= LOG_EVERY_MS) {
    lastLoggedMs = nowMs;
    console.error('runtime: a call failed for a reason that is not its caller’s:', caught);
  }
  return toldText(caught);
}
