import type { Usage } from '#scheduler/invocations/types.ts';

/** An attempt as its reports see it: its outbox. */
export interface Reporting {
  /** When the store last heard of it, by `performance.now`. */
  readonly spokeAt: number;
  /** Usage that the store has heard of last; null before the first. */
  readonly told: Usage | null;
  /** Tells the store; false when it has something else to say first. */
  report(usage: Usage): boolean;
}

interface Watched {
  readonly attempt: Reporting;
  readonly usage: () => Usage;
}

/** An attempt that has said nothing for so long reports what it has used since. */
export const QUIET_MS = 1000;
/** Time between two looks; it spreads the reports of attempts that began together. */
const LOOK_MS = 250;
/** Reports of one look: the others come with the next. */
const MAX_REPORTS = 200;
/** What a report is worth while it changes; the rest goes along. */
const WORTH: readonly string[] = ['inputTokens', 'outputTokens', 'cachedTokens', 'gpuMs', 'cpuMs', 'pageSeconds'];

/**
 * Sees to it that the usage of attempts that say nothing is counted all the same, so that quotas end them in time and little is lost with
 * their runtime. One timer looks at all of them; an attempt that speaks costs nothing here.
 */
export class UsageReports {
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | undefined;

  /** Watches an attempt until the returned function is called. */
  watch(attempt: Reporting, usage: () => Usage): () => void {
    const watched = { attempt, usage };
    this.#watched.add(watched);
    this.#timer ??= setInterval(() => this.look(performance.now()), LOOK_MS).unref();
    return () => {
      this.#watched.delete(watched);
      if (this.#watched.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  look(nowMs: number): void {
    let left = MAX_REPORTS;
    for (const watched of this.#watched) {
      if (left === 0) return;
      const { attempt, usage } = watched;
      if (nowMs - attempt.spokeAt < QUIET_MS) continue;
      const current = usage();
      if (!worthTelling(attempt.told, current) || !attempt.report(current)) continue;
      left--;
      // Whoever has reported is looked at last the next time.
      this.#watched.delete(watched);
      this.#watched.add(watched);
    }
  }
}

/** Whether an attempt has used more of what is counted than it told. */
export function worthTelling(told: Usage | null, current: Usage): boolean {
  return WORTH.some((name) => (current[name] ?? 0) > (told?.[name] ?? 0));
}
