/** Two strikes within this time quarantine a version. After a loss, a version is a suspect for this long. */
export const WINDOW_MS = 10 * 60_000;
/** Number of strikes within {@link WINDOW_MS} that quarantine a version. A strike is the loss of a sandbox in which the version ran alone. */
export const STRIKES = 2;

/**
 * `suspect`: its invocations run in sandboxes of their own, so the next loss has a single possible cause. `quarantined`: it does not run.
 */
export const STANDINGS = ['clear', 'suspect', 'quarantined'] as const;
export type Standing = (typeof STANDINGS)[number];

/** The losses of a version whose sandbox was lost while it computed. Times are milliseconds since the Unix epoch. */
export interface Conduct {
  readonly suspectUntil: number;
  /** Times of at most {@link STRIKES} strikes, none older than {@link WINDOW_MS} before the last loss of any kind. */
  readonly strikes: readonly number[];
  /** Absent unless the version is quarantined; a script checks for it. */
  readonly quarantinedAt?: number;
}

/**
 * The conduct of a version after its sandbox was lost while the version computed. With several runs in one sandbox, the
 * cause is unknown, so only a loss while alone is a strike. Pure.
 *
 * @param isAlone true when the sandbox held only one run
 */
export function afterLoss(known: Conduct | null, isAlone: boolean, now: number): Conduct {
  const recent = (known?.strikes ?? []).filter((at) => at > now - WINDOW_MS);
  const strikes = isAlone ? [...recent, now].slice(-STRIKES) : recent;
  const quarantinedAt = known?.quarantinedAt ?? (strikes.length >= STRIKES ? now : undefined);
  return { suspectUntil: now + WINDOW_MS, strikes, ...(quarantinedAt !== undefined && { quarantinedAt }) };
}

/** The standing of a version. `scripts/include/standing.lua` computes the same. Pure. */
export function standingOf(conduct: Conduct | null, now: number): Standing {
  if (conduct === null) return 'clear';
  if (conduct.quarantinedAt !== undefined) return 'quarantined';
  return now < conduct.suspectUntil ? 'suspect' : 'clear';
}

/** The reason why a quarantined version does not run, for people. */
export const quarantineText = (name: string, version: string): string =>
  `${name}@${version} is quarantined: twice within ten minutes its sandbox crashed or stopped answering while this version computed alone in it.`;
