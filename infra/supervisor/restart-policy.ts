/** First pause before a restart; it doubles with each quick death. */
const FIRST_DELAY_MS = 50;
const MAX_DELAY_MS = 5000;
/** A child that lived this long restarts after the shortest pause. */
const HEALTHY_AFTER_MS = 20_000;

/** A child's history, as far as the policy needs it. */
export interface RestartHistory {
  /** Deaths in a row, each within {@link HEALTHY_AFTER_MS} of its start. */
  readonly quickDeaths: number;
}

export const NO_HISTORY: RestartHistory = { quickDeaths: 0 };

/** The pause before the next start of a child that just died after `livedMs`, and the child's new history. */
export function afterDeath(history: RestartHistory, livedMs: number): { delayMs: number; history: RestartHistory } {
  const quickDeaths = livedMs >= HEALTHY_AFTER_MS ? 1 : history.quickDeaths + 1;
  return { delayMs: Math.min(FIRST_DELAY_MS * 2 ** (quickDeaths - 1), MAX_DELAY_MS), history: { quickDeaths } };
}
