/** Pause before the first restart. Each further quick death doubles the pause, up to `MAX_DELAY_MS`. */
const FIRST_DELAY_MS = 50;
const MAX_DELAY_MS = 5000;
/** A death is quick when the child lived for less than this time. After a death that is not quick, the pause is `FIRST_DELAY_MS` again. */
const HEALTHY_AFTER_MS = 20_000;

/** The part of a child's history that decides the next pause. */
export interface RestartHistory {
  /** Number of quick deaths in a row. A death after {@link HEALTHY_AFTER_MS} starts the count again at 1. */
  readonly quickDeaths: number;
}

/** History of a child that has not died yet. */
export const NO_HISTORY: RestartHistory = { quickDeaths: 0 };

/**
 * Decides the restart of a child that has just died.
 * @param history the child's history before this death
 * @param livedMs time from the child's start to its death
 * @returns the pause before the restart, and the history that includes this death
 */
export function afterDeath(history: RestartHistory, livedMs: number): { delayMs: number; history: RestartHistory } {
  const isQuick = livedMs < HEALTHY_AFTER_MS;
  const quickDeaths = isQuick ? history.quickDeaths + 1 : 1;
  const delayMs = Math.min(FIRST_DELAY_MS * 2 ** (quickDeaths - 1), MAX_DELAY_MS);
  return { delayMs, history: { quickDeaths } };
}
