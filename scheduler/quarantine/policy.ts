/** Time within which {@link STRIKES} strikes quarantine a version, and time for which a version is a suspect after a loss. */
export const WINDOW_MS = 10 * 60_000;
/** Number of strikes that quarantine a version. A strike is the loss of a sandbox in which the version ran alone. */
export const STRIKES = 2;

/**
 * Standings of a function version. The invocations of a `suspect` run in sandboxes of their own, so that the next loss has a single possible cause.
 * A `quarantined` version does not run.
 */
export const STANDINGS = ['clear', 'suspect', 'quarantined'] as const;
export type Standing = (typeof STANDINGS)[number];

/** The record of a version's losses (sandboxes that were lost while the version computed). Times are milliseconds since the Unix epoch. */
export interface Conduct {
  readonly suspectUntil: number;
  /** Times of the last strikes, at most {@link STRIKES}. None is older than {@link WINDOW_MS} before the last loss. */
  readonly strikes: readonly number[];
  /** Absent unless the version is quarantined. Scripts test whether it is present. */
  readonly quarantinedAt?: number;
}

/**
 * The conduct of a version after one more loss. When several runs share the lost sandbox, any of them may be the cause, so such a loss is no
 * strike. Pure.
 *
 * @param known the conduct before the loss; null for none
 * @param isAlone true when the sandbox held only one run
 */
export function afterLoss(known: Conduct | null, isAlone: boolean, now: number): Conduct {
  const recent = (known?.strikes ?? []).filter((at) => at > now - WINDOW_MS);
  const strikes = isAlone ? [...recent, now].slice(-STRIKES) : recent;
  const quarantinedAt = known?.quarantinedAt ?? (strikes.length >= STRIKES ? now : undefined);
  return { suspectUntil: now + WINDOW_MS, strikes, ...(quarantinedAt !== undefined && { quarantinedAt }) };
}

/** The standing of a version. `quarantine.lua` computes the same. Pure. */
export function standingOf(conduct: Conduct | null, now: number): Standing {
  if (conduct === null) return 'clear';
  if (conduct.quarantinedAt !== undefined) return 'quarantined';
  return now < conduct.suspectUntil ? 'suspect' : 'clear';
}

/** The reason why a quarantined version does not run, as a text for people. */
export const quarantineText = (name: string, version: string): string =>
  `${name}@${version} is quarantined: twice within ten minutes its sandbox crashed or stopped answering while this version computed alone in it.`;
