/** A gap of more than this many intervals between two looks means that the watcher itself was suspended. */
const SUSPENDED_INTERVALS = 2.5;

/** Longest times that a child's event loop may go without a turn. */
export interface WatchLimits {
  /** Interval of the watcher's looks and of the child's beats. */
  readonly everyMs: number;
  /** Limit on processor time that the child's main thread received. */
  readonly computingMs: number;
  /** Limit on time in which the child's main thread neither computed nor waited for a processor. */
  readonly stillMs: number;
}

/** One look at a child. */
export interface Look {
  readonly atMs: number;
  /** True when the child has beaten since the last look. */
  readonly hasBeaten: boolean;
  /** Times of the child's main thread since its start; null when the system does not provide them. */
  readonly thread: ThreadTimes | null;
}

/** Times of a thread since its start, and its state. */
export interface ThreadTimes {
  readonly computedMs: number;
  /** Time in which the thread was runnable while other threads had the processors. The kernel counts a wait only when the wait ends. */
  readonly queuedMs: number;
  /** True when the thread computes or waits for a processor now, and is neither stopped nor asleep. */
  readonly ready: boolean;
}

/** Times accumulated since a child's last beat. */
export interface Silence {
  readonly last: Look;
  readonly computingMs: number;
  readonly stillMs: number;
}

/** `computing`: the child computes without end. `still`: the child does nothing. */
export type Verdict = 'alive' | 'computing' | 'still';

export function beginWatch(first: Look): Silence {
  return { last: first, computingMs: 0, stillMs: 0 };
}

/**
 * Adds a look to the silence so far. A gap in which the supervisor itself was suspended counts as one interval: the child may have been
 * suspended as well, or its beats may be unread. A pause of the whole machine therefore makes no child count as silent. While a child is
 * ready, the time that the kernel does not explain is a wait for a processor that has not ended: a child that yields its cores may wait for
 * seconds at once. A stopped child is not ready.
 */
export function look(before: Silence, now: Look, limits: WatchLimits): { silence: Silence; verdict: Verdict } {
  if (now.hasBeaten) return { silence: beginWatch(now), verdict: 'alive' };
  const passedMs = now.atMs - before.last.atMs;
  const countedMs = passedMs > SUSPENDED_INTERVALS * limits.everyMs ? limits.everyMs : passedMs;
  const computedMs = Math.min(countedMs, since(before.last, now, 'computedMs'));
  const restMs = countedMs - computedMs;
  const queuedMs = now.thread?.ready ? restMs : Math.min(restMs, since(before.last, now, 'queuedMs'));
  const silence = {
    last: now,
    computingMs: before.computingMs + computedMs,
    stillMs: before.stillMs + restMs - queuedMs,
  };
  if (silence.computingMs >= limits.computingMs) return { silence, verdict: 'computing' };
  return { silence, verdict: silence.stillMs >= limits.stillMs ? 'still' : 'alive' };
}

function since(before: Look, now: Look, time: 'computedMs' | 'queuedMs'): number {
  if (before.thread === null || now.thread === null) return 0;
  return Math.max(0, now.thread[time] - before.thread[time]);
}
