/** How often a child is looked at, and how often it beats. */
export const BEAT_MS = 100;
/** A look that comes so long after the last one tells that the supervisor itself stood still. */
const OWN_PAUSE_MS = 250;

/** How long the event loop of a child may turn no more. */
export interface WatchLimits {
  /** Of processor time that its main thread received. */
  readonly computingMs: number;
  /** Of time in which its main thread neither computed nor waited for a processor. */
  readonly stillMs: number;
}

/** One look at a child. */
export interface Look {
  readonly atMs: number;
  /** Whether it has beaten since the last look. */
  readonly beaten: boolean;
  /** Times of its main thread since its start; null when the system does not tell them. */
  readonly thread: ThreadTimes | null;
}

/** Times of a thread since its start. */
export interface ThreadTimes {
  readonly computedMs: number;
  /** It was ready to compute, and other threads had the processors. */
  readonly queuedMs: number;
}

/** What is known of a child since its last beat. */
export interface Silence {
  readonly last: Look;
  readonly computingMs: number;
  readonly stillMs: number;
}

/** `computing`: it computes without an end. `still`: it does nothing at all. */
export type Verdict = 'alive' | 'computing' | 'still';

export function beginWatch(first: Look): Silence {
  return { last: first, computingMs: 0, stillMs: 0 };
}

/**
 * Adds a look to what is known. Time in which the supervisor itself stood still counts as one look's: the child may have stood still with it, or
 * have beaten unread. So a machine that pauses as a whole silences no child.
 */
export function look(before: Silence, now: Look, limits: WatchLimits): { silence: Silence; verdict: Verdict } {
  if (now.beaten) return { silence: beginWatch(now), verdict: 'alive' };
  const passedMs = now.atMs - before.last.atMs;
  const countedMs = passedMs > OWN_PAUSE_MS ? BEAT_MS : passedMs;
  const computedMs = Math.min(countedMs, since(before.last, now, 'computedMs'));
  const queuedMs = Math.min(countedMs - computedMs, since(before.last, now, 'queuedMs'));
  const silence = {
    last: now,
    computingMs: before.computingMs + computedMs,
    stillMs: before.stillMs + countedMs - computedMs - queuedMs,
  };
  if (silence.computingMs >= limits.computingMs) return { silence, verdict: 'computing' };
  return { silence, verdict: silence.stillMs >= limits.stillMs ? 'still' : 'alive' };
}

function since(before: Look, now: Look, time: keyof ThreadTimes): number {
  if (before.thread === null || now.thread === null) return 0;
  return Math.max(0, now.thread[time] - before.thread[time]);
}
