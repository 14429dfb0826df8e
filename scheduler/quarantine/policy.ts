/** Two kills within this time quarantine a version, and one kill makes it a suspect for so long. */
export const WINDOW_MS = 10 * 60_000;
/** Kills alone within {@link WINDOW_MS} that quarantine a version. */
export const STRIKES = 2;

/**
 * `suspect`: its invocations run in sandboxes of their own, so that the next kill tells whose doing it is. `quarantined`: it is not run.
 */
export const STANDINGS = ['clear', 'suspect', 'quarantined'] as const;
export type Standing = (typeof STANDINGS)[number];

/** What is known of a version whose sandbox was lost while it computed. Times are milliseconds since the Unix epoch. */
export interface Conduct {
  readonly suspectUntil: number;
  /** When its sandbox was lost with nothing else in it, within the window before the last such loss. */
  readonly strikes: readonly number[];
  /** Absent while it is not quarantined: a script asks for it. */
  readonly quarantinedAt?: number;
}

/**
 * The conduct of a version after its sandbox was lost while it computed. Only a loss while alone is a strike: of several functions in one
 * sandbox nothing tells which one did it. Pure.
 */
export function afterLoss(known: Conduct | null, alone: boolean, now: number): Conduct {
  const recent = (known?.strikes ?? []).filter((at) => at > now - WINDOW_MS);
  const strikes = alone ? [...recent, now].slice(-STRIKES) : recent;
  const quarantinedAt = known?.quarantinedAt ?? (strikes.length >= STRIKES ? now : undefined);
  return { suspectUntil: now + WINDOW_MS, strikes, ...(quarantinedAt !== undefined && { quarantinedAt }) };
}

/** How a version stands. `scripts/include/standing.lua` says the same. Pure. */
export function standingOf(conduct: Conduct | null, now: number): Standing {
  if (conduct === null) return 'clear';
  if (conduct.quarantinedAt !== undefined) return 'quarantined';
  return now < conduct.suspectUntil ? 'suspect' : 'clear';
}

/** Why a version is not run, for people. */
export const quarantineText = (name: string, version: string): string =>
  `${name}@${version} is quarantined: twice within ten minutes its sandbox crashed or stopped answering while this version computed alone in it.`;
