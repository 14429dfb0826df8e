/** This module decides which sandboxes begin and end. It is pure: time comes in as an argument. */

/** Settings of a fleet. */
export interface FleetPolicy {
  /** Bound on sandboxes, including spares. */
  readonly most: number;
  /** Target number of spares: sandboxes that wait for a tenant. */
  readonly spares: number;
  /** Bound on one tenant's sandboxes; 1 by default. Sandboxes for lone runs, which serve one run each, do not count. */
  readonly perTenant?: number;
  /** Time after which a sandbox without runs ends. */
  readonly idleMs: number;
}

export interface FleetMember<T> {
  readonly sandbox: T;
  readonly tenant: string | null;
  readonly runs: number;
  /** True when the sandbox stays while it has no runs, because it keeps ready instances. */
  readonly kept: boolean;
  /** Time from which the sandbox has had no runs, in ms. */
  readonly idleSinceMs: number;
}

/** Returns the sandboxes that have been idle for `idleMs`, except those with `kept`. A spare is not idle: it waits for a tenant. */
export function outworn<T>(members: readonly FleetMember<T>[], policy: FleetPolicy, nowMs: number): T[] {
  return members
    .filter(
      ({ tenant, runs, kept, idleSinceMs }) =>
        tenant !== null && runs === 0 && !kept && nowMs - idleSinceMs >= policy.idleMs,
    )
    .map(({ sandbox }) => sandbox);
}

/**
 * Returns the sandbox that makes room for another tenant when the fleet is full: of the idle sandboxes, the one that has been idle for
 * longest. A sandbox that keeps ready instances goes only when no other is idle. Returns undefined when no sandbox is idle.
 */
export function leastNeeded<T>(members: readonly FleetMember<T>[]): T | undefined {
  const idle = members.filter(({ tenant, runs }) => tenant !== null && runs === 0);
  const [first] = idle.sort((a, b) => Number(a.kept) - Number(b.kept) || a.idleSinceMs - b.idleSinceMs);
  return first?.sandbox;
}

/** Number of spares to begin now: at most one, because simultaneous starts take the cores from running guests. */
export function sparesToBegin<T>(members: readonly FleetMember<T>[], policy: FleetPolicy, beginning: number): number {
  const spares = members.filter(({ tenant }) => tenant === null).length;
  const room = policy.most - members.length - beginning;
  return beginning === 0 && room > 0 && spares < policy.spares ? 1 : 0;
}

/** A tenant with this many runs in each sandbox gets another sandbox, because the guests of one sandbox share a thread. */
export const BUSY_RUNS = 16;

/** True when a busy tenant takes a spare for its next run. `runs` counts the runs in each of its sandboxes. */
export const takesAnother = (runs: readonly number[], { perTenant = 1 }: FleetPolicy): boolean =>
  runs.length < perTenant && runs.every((count) => count >= BUSY_RUNS);

const MOST_ALONE = 4;

/**
 * Bound on one tenant's sandboxes for lone runs: at most `MOST_ALONE`, a quarter of all sandboxes, and one more than half of the cores. Each
 * such sandbox takes a part of the cores. The additional one lets a second lone run begin beside a long one.
 */
export const alonePlaces = ({ most }: FleetPolicy, cores: number): number =>
  Math.max(1, Math.min(MOST_ALONE, Math.floor(most / 4), 1 + Math.floor(cores / 2)));

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;

/** Pause before the next start after this many failed starts in a row. */
export const pauseAfter = (failures: number): number =>
  failures === 0 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
