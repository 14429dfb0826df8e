/** A gap of more than this many intervals between two looks means that the watcher itself was suspended. */
const SUSPENDED_INTERVALS = 2.5;

/**
 * Limits on the silence of a child, which is the time since its last beat. A child beats while its event loop turns. A
 * child is a process of the platform, which the supervisor watches, or a sandbox, which its runtime watches.
 */
export interface WatchLimits {
  /** Interval of the watcher's looks and of the child's beats. */
  readonly everyMs: number;
  /** Limit on the processor time that the child's main thread receives during the silence. */
  readonly computingMs: number;
  /** Limit on the time during the silence in which the child's main thread neither computes nor waits for a processor. */
  readonly stillMs: number;
}

/** One look of the watcher at a child. */
export interface Look {
  readonly atMs: number;
  /** True when the child has beaten since the last look. */
  readonly hasBeaten: boolean;
  /** Times of the child's main thread; null when the system does not provide them. A look that finds a beat needs none. */
  readonly thread: ThreadTimes | null;
}

/** Times of a thread since its start, and its state. */
export interface ThreadTimes {
  /** Processor time that the thread received. */
  readonly computedMs: number;
  /** Time in which the thread was runnable while other threads had the processors. The kernel counts a wait only when the wait ends. */
  readonly queuedMs: number;
  /** True when the thread computes or waits for a processor now, and is neither stopped nor asleep. */
  readonly ready: boolean;
}

/**
 * What the child did between the last two looks: it beat (`scheduled`), or its main thread mostly computed, waited for a processor (`starved`), or
 * did neither (`stopped`).
 */
export type State = 'scheduled' | 'computing' | 'starved' | 'stopped';

/** The silence of a child so far: the last look, the times that `WatchLimits` limits, and what the child did last. */
export interface Silence {
  readonly last: Look;
  /** Time since the last beat, by the watcher's clock, ms. */
  readonly silentMs: number;
  readonly computingMs: number;
  readonly stillMs: number;
  readonly state: State;
}

/**
 * `computing`: the processor time of the child's main thread during the silence has reached the limit `computingMs`.
 * `still`: the time in which this thread neither computed nor waited for a processor has reached `stillMs`.
 */
export type Verdict = 'alive' | 'computing' | 'still';

export function beginWatch(first: Look): Silence {
  return { last: first, silentMs: 0, computingMs: 0, stillMs: 0, state: 'scheduled' };
}

/**
 * Adds a look to the silence so far. The time since the last look has three parts. The thread's times (`ThreadTimes`)
 * tell two of them: the thread computed, or it waited for a processor. In the rest, the thread stood still. A wait for
 * a processor counts against no limit.
 *
 * A gap in which the watcher itself was suspended counts as one interval: the child may have been suspended as well, or
 * the watcher has not read its beats yet. A pause of the whole machine therefore makes no child count as silent.
 */
export function look(before: Silence, now: Look, limits: WatchLimits): { silence: Silence; verdict: Verdict } {
  if (now.hasBeaten) return { silence: beginWatch(now), verdict: 'alive' };
  const passedMs = now.atMs - before.last.atMs;
  const countedMs = passedMs > SUSPENDED_INTERVALS * limits.everyMs ? limits.everyMs : passedMs;
  const computedMs = Math.min(countedMs, since(before.last, now, 'computedMs'));
  const restMs = countedMs - computedMs;
  // A ready thread may be in a wait for a processor, which the kernel counts only at its end. The wait may take seconds for a child that yields to
  // others (a sandbox of little weight), so all of the rest counts as waiting. A thread that a signal has stopped is not ready.
  const queuedMs = now.thread?.ready ? restMs : Math.min(restMs, since(before.last, now, 'queuedMs'));
  const stillMs = restMs - queuedMs;
  const silence: Silence = {
    last: now,
    silentMs: before.silentMs + passedMs,
    computingMs: before.computingMs + computedMs,
    stillMs: before.stillMs + stillMs,
    state: longestOf(stillMs, queuedMs, computedMs),
  };
  if (silence.computingMs >= limits.computingMs) return { silence, verdict: 'computing' };
  return { silence, verdict: silence.stillMs >= limits.stillMs ? 'still' : 'alive' };
}

function longestOf(stillMs: number, queuedMs: number, computedMs: number): State {
  if (stillMs > Math.max(queuedMs, computedMs)) return 'stopped';
  return queuedMs >= computedMs ? 'starved' : 'computing';
}

function since(before: Look, now: Look, time: 'computedMs' | 'queuedMs'): number {
  if (before.thread === null || now.thread === null) return 0;
  return Math.max(0, now.thread[time] - before.thread[time]);
}

/** The times of a silence and their limits, by which a watch decides. */
export type SilenceFigures = Readonly<Record<'computedMs' | 'computingLimitMs' | 'stoodMs' | 'stillLimitMs', number>>;

export function silenceFigures(
  { computingMs, stillMs }: Silence,
  limits: Pick<WatchLimits, 'computingMs' | 'stillMs'>,
): SilenceFigures {
  return {
    computedMs: Math.round(computingMs),
    computingLimitMs: limits.computingMs,
    stoodMs: Math.round(stillMs),
    stillLimitMs: limits.stillMs,
  };
}
