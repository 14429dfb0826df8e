import type { Usage } from '#scheduler/invocations/types.ts';

/** The part of an attempt's outbox that reports use. */
export interface Reporting {
  /** Time of the attempt's last call to the store, by `performance.now`. */
  readonly lastCallAt: number;
  /** The usage last reported to the store; null before the first report. */
  readonly reported: Usage | null;
  /** Reports usage to the store; false when the outbox has other calls to make first. */
  report(usage: Usage): boolean;
}

interface Watched {
  readonly attempt: Reporting;
  readonly usage: () => Usage;
  /** True when the attempt holds tokens of a quota that it does not use: a report returns them. */
  readonly hasSurplus: () => boolean;
}

/** An attempt that has not called the store for this long reports its usage. */
export const QUIET_MS = 1000;
/** The same for one that holds tokens which it does not use: others wait for them at most a second. */
const SURPLUS_QUIET_MS = 250;
/** Interval between two rounds of checks; it spreads the reports of attempts that began together. */
const ROUND_MS = 250;
/** Maximum reports of one round: the other attempts wait for the next round. */
const MAX_REPORTS = 200;
/** Fields whose change justifies a report; a report carries the other fields, too. */
const WORTH: readonly string[] = ['inputTokens', 'outputTokens', 'cachedTokens', 'gpuMs', 'cpuMs', 'pageSeconds'];

/**
 * Reports the usage of attempts that write no events, so that quotas end them in time, a dying runtime loses little of their usage, and tokens
 * that they do not use go back to their quotas.
 * One timer checks all attempts; an attempt that writes events makes no extra calls.
 */
export class UsageReports {
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | undefined;

  /** Watches an attempt until the returned function is called. */
  watch(attempt: Reporting, usage: () => Usage, hasSurplus: () => boolean = () => false): () => void {
    const watched = { attempt, usage, hasSurplus };
    this.#watched.add(watched);
    this.#timer ??= setInterval(() => this.look(performance.now()), ROUND_MS).unref();
    return () => {
      this.#watched.delete(watched);
      if (this.#watched.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  /** Runs one round. @param nowMs the time by `performance.now` */
  look(nowMs: number): void {
    let remainingReports = MAX_REPORTS;
    for (const watched of [...this.#watched]) {
      if (remainingReports === 0) return;
      const { attempt, usage } = watched;
      const quietMs = nowMs - attempt.lastCallAt;
      const hasSurplus = quietMs >= SURPLUS_QUIET_MS && watched.hasSurplus();
      if (quietMs < QUIET_MS && !hasSurplus) continue;
      const current = usage();
      if (!(hasSurplus || worthReporting(attempt.reported, current)) || !attempt.report(current)) continue;
      remainingReports--;
      // Move the attempt to the end: the next round checks it last.
      this.#watched.delete(watched);
      this.#watched.add(watched);
    }
  }
}

/** True when a counted field exceeds its last reported value. */
export function worthReporting(reported: Usage | null, current: Usage): boolean {
  return WORTH.some((name) => (current[name] ?? 0) > (reported?.[name] ?? 0));
}
