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

/**
 * A guest *moves* when it computes, begins or is answered. A guest that moved at most this long before its sandbox's last message may have
 * silenced the sandbox.
 */
const RECENT_MS = 1000;
/** A sandbox sends a message every 100 ms. A sandbox that has been silent for this long passes nothing on to its guests. */
const SILENT_MS = 500;

/** Returns `nowMs` for an event that moves a guest now; null when the sandbox has been silent and therefore does not pass the event on. Pure. */
export const movedAt = (heardAtMs: number, nowMs: number): number | null =>
  nowMs - heardAtMs < SILENT_MS ? nowMs : null;

/** A guest of a sandbox that was lost. */
export interface Inhabitant {
  /** Time at which the guest last moved, as far as the runtime knows. */
  readonly movedAtMs: number;
}

/**
 * Returns the guests of a lost sandbox that may have been computing: those that moved recently. When no guest is known to have moved, returns all
 * guests. If the sandbox then stood still (its thread was stopped or waited for something other than a core), no guest computed, and it returns
 * none. Pure.
 *
 * @param heardAtMs time of the sandbox's last message
 */
export function suspectsOf<T extends Inhabitant>(
  all: readonly T[],
  heardAtMs: number,
  stoodStill: boolean,
): readonly T[] {
  const moved = all.filter(({ movedAtMs }) => heardAtMs - movedAtMs < RECENT_MS);
  return moved.length > 0 || stoodStill ? moved : all;
}

/**
 * How long a launch may wait for its sandbox: to make its instance, or to take the modules that it needs. Time in which the sandbox waits for a core
 * does not make it faulty, and neither do the guests that compute in it: a launch that is only slow fails alone. Pure, except for `LaunchClock`,
 * which reads the clock and the sandbox's times.
 */

/**
 * A sandbox is faulty when it has got `faultyCpuMs` of processor time for launches since it last finished one, in at least `faultyMs`. A launch is
 * late after `mostMs`, whatever the sandbox did.
 */
export const LAUNCH_LIMITS = { faultyMs: 20_000, faultyCpuMs: 5000, mostMs: 120_000 } as const;

export interface LaunchTimes {
  /** Time since the launch began to wait, ms. */
  readonly waitedMs: number;
  /** Time since the sandbox last finished a step of any launch, or since this launch began, ms. */
  readonly idleMs: number;
  /** Processor time that the sandbox got since then, without that of its guests, ms. */
  readonly computedMs: number;
}

/** `late`: this launch fails. `faulty`: the sandbox is killed. */
export type LaunchVerdict = 'wait' | 'late' | 'faulty';

export function judgeLaunch(
  { waitedMs, idleMs, computedMs }: LaunchTimes,
  limits: { readonly faultyMs: number; readonly faultyCpuMs: number; readonly mostMs: number } = LAUNCH_LIMITS,
): LaunchVerdict {
  if (idleMs >= limits.faultyMs && computedMs >= limits.faultyCpuMs) return 'faulty';
  return waitedMs >= limits.mostMs ? 'late' : 'wait';
}

/** The sandbox's progress with launches, and what its guests used: the launches of a sandbox share one. */
export class LaunchClock {
  readonly #usedMs: () => number | null;
  #steps = 0;
  #guestsMs = 0;

  /** @param usedMs processor time of the sandbox since its start; null when the system does not provide it */
  constructor(usedMs: () => number | null) {
    this.#usedMs = usedMs;
  }

  /** Call when the sandbox has finished a step of a launch. */
  noteStep(): void {
    this.#steps++;
  }

  /** Call with the processor time that guests of the sandbox have used since the last call. */
  noteGuests(computedMs: number): void {
    this.#guestsMs += computedMs;
  }

  /** Begins to time a launch; the returned function tells its times. */
  begin(): () => LaunchTimes {
    const beganAtMs = performance.now();
    const mark = () => ({ atMs: performance.now(), steps: this.#steps, ownMs: this.#ownMs });
    let last = mark();
    return () => {
      // A step that came since the last reading counts as one that comes now.
      if (this.#steps !== last.steps) last = mark();
      const nowMs = performance.now();
      const computedMs = Math.max(0, this.#ownMs - last.ownMs);
      return { waitedMs: nowMs - beganAtMs, idleMs: nowMs - last.atMs, computedMs };
    };
  }

  /** Processor time without that of the guests. Without times of the system, only the limit on the whole wait applies. */
  get #ownMs(): number {
    return (this.#usedMs() ?? 0) - this.#guestsMs;
  }
}
