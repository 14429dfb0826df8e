/** Which sandboxes begin and end. Pure: time comes in as an argument. */
export interface FleetPolicy {
  /** Sandboxes at once, spares included. */
  readonly most: number;
  /** Sandboxes without a tenant that wait for one. */
  readonly spares: number;
  /** Sandboxes that one tenant may have at once, besides those for runs that are to be alone; 1 when left out. */
  readonly perTenant?: number;
  /** A sandbox without runs ends after so long. */
  readonly idleMs: number;
}

export interface FleetMember<T> {
  readonly sandbox: T;
  readonly tenant: string | null;
  readonly runs: number;
  /** It is kept while it has no runs, for functions that ask for ready instances. */
  readonly kept: boolean;
  /** Since when it has had no runs, in ms. */
  readonly idleSinceMs: number;
}

/** Sandboxes that have been idle for long enough. A spare is not idle: it waits for its tenant. */
export function outworn<T>(members: readonly FleetMember<T>[], policy: FleetPolicy, nowMs: number): T[] {
  return members
    .filter(
      ({ tenant, runs, kept, idleSinceMs }) =>
        tenant !== null && runs === 0 && !kept && nowMs - idleSinceMs >= policy.idleMs,
    )
    .map(({ sandbox }) => sandbox);
}

/**
 * The sandbox that gives its place to another tenant when the fleet is full: the one that has been idle for longest; one that is kept for
 * ready instances only when no other is idle. Undefined when all have runs.
 */
export function leastNeeded<T>(members: readonly FleetMember<T>[]): T | undefined {
  const idle = members.filter(({ tenant, runs }) => tenant !== null && runs === 0);
  const order = (member: FleetMember<T>) => [member.kept ? 1 : 0, member.idleSinceMs] as const;
  return idle.sort((a, b) => order(a)[0] - order(b)[0] || order(a)[1] - order(b)[1])[0]?.sandbox;
}

/** Spares to begin now. One at a time: spares that begin together take the cores from what runs. */
export function sparesToBegin<T>(members: readonly FleetMember<T>[], policy: FleetPolicy, beginning: number): number {
  const spares = members.filter(({ tenant }) => tenant === null).length;
  const room = policy.most - members.length - beginning;
  return beginning === 0 && room > 0 && spares < policy.spares ? 1 : 0;
}

/** Runs in each of a tenant's sandboxes from which on another one is worth its memory: their guests share one thread. */
export const BUSY_RUNS = 16;

/** Whether a busy tenant takes a spare for its next run, by the runs in the sandboxes that it has. */
export const takesAnother = (runs: readonly number[], { perTenant = 1 }: FleetPolicy): boolean =>
  runs.length < perTenant && runs.every((count) => count >= BUSY_RUNS);

const MOST_ALONE = 4;

/**
 * Sandboxes that one tenant may have at once for runs that are to be alone: a quarter of all, and few. Each takes a part of the cores: there is one
 * more than half of those, so that one run that stays for long does not keep the next from being told from its neighbours.
 */
export const alonePlaces = ({ most }: FleetPolicy, cores: number): number =>
  Math.max(1, Math.min(MOST_ALONE, Math.floor(most / 4), 1 + Math.floor(cores / 2)));

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;

/** Pause before the next start after so many starts in a row that failed. */
export const pauseAfter = (failures: number): number =>
  failures === 0 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
