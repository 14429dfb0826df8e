import { readFileSync } from 'node:fs';
import type { ThreadTimes } from './watch-policy.ts';

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
