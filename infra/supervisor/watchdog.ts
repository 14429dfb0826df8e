import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import {
  beginWatch,
  type Look,
  look,
  type SilenceFigures,
  type State,
  silenceFigures,
  type ThreadTimes,
  type WatchLimits,
} from './watch-policy.ts';

/** A watch over a process. */
export interface Watch {
  /** What the process did at the last look, and the time since its last beat, ms. */
  readonly seen: { readonly state: State; readonly silentMs: number };
  /** Goes on looking, but does not report a silence any more: the process has been asked to end, which has a time limit of its own. */
  lookOnly(): void;
  end(): void;
}

/** A child whose last beat is not older than this many intervals counts as `scheduled`: beats and looks have the same interval. */
const BEATING_INTERVALS = 2.5;

/**
 * Watches the event loop of a process that beats on a socket (`infra/lifeline.ts`). Calls `onSilent` once, with the reason
 * and the figures that decided.
 */
export function watch(
  pid: number,
  beats: Socket,
  limits: WatchLimits,
  onSilent: (why: string, figures: SilenceFigures) => void,
): Watch {
  let hasBeaten = false;
  const beat = () => {
    hasBeaten = true;
  };
  const takeLook = (): Look => {
    // Reading the times costs tens of microseconds, and only the times of a silent process count.
    const now = { atMs: performance.now(), hasBeaten, thread: hasBeaten ? null : mainThreadTimes(pid) };
    hasBeaten = false;
    return now;
  };
  beats.on('data', beat);
  let silence = beginWatch(takeLook());
  let reports = true;
  const timer = setInterval(() => {
    const { silence: next, verdict } = look(silence, takeLook(), limits);
    silence = next;
    if (verdict === 'alive' || !reports) return;
    end();
    const why =
      verdict === 'computing'
        ? `its event loop did not turn for ${seconds(next.computingMs)} s of processor time`
        : `its event loop stood still for ${seconds(next.stillMs)} s`;
    onSilent(why, silenceFigures(next, limits));
  }, limits.everyMs);
  const end = () => {
    clearInterval(timer);
    beats.off('data', beat);
  };
  return {
    get seen(): Watch['seen'] {
      const { state, silentMs } = silence;
      if (silentMs <= BEATING_INTERVALS * limits.everyMs) return { state: 'scheduled', silentMs: 0 };
      return { state, silentMs: Math.round(silentMs) };
    },
    lookOnly: () => {
      reports = false;
    },
    end,
  };
}

const seconds = (ms: number): string => (ms / 1000).toFixed(1);

const NS_PER_MS = 1e6;

/** Times and state of a process's main thread from Linux's scheduler; null on other systems, or when the process is gone. */
export function mainThreadTimes(pid: number): ThreadTimes | null {
  const spent = mainThreadSpent(pid);
  try {
    // The process name, in parentheses, may contain any characters.
    const state = readFileSync(`/proc/${pid}/task/${pid}/stat`, 'utf8').split(') ').at(-1)?.[0];
    return spent && { ...spent, ready: state === 'R' };
  } catch {
    return null; // The process ended meanwhile, or this system has no such file.
  }
}

/** Times of a process's main thread without its state, which takes another read; null as for `mainThreadTimes`. */
export function mainThreadSpent(pid: number): Omit<ThreadTimes, 'ready'> | null {
  try {
    const [computed, queued] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ').map(Number);
    if (computed === undefined || queued === undefined) return null;
    return { computedMs: computed / NS_PER_MS, queuedMs: queued / NS_PER_MS };
  } catch {
    return null;
  }
}
