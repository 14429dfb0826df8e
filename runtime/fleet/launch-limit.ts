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
