/**
 * The clock policy of leases and links: time in which a process waits for a core counts against no deadline. A peer that misses a sign of life
 * cannot know why, but the supervisor of the silent process can: it looks at the process four times a second (`infra/supervisor`) and publishes
 * what it sees. While the supervisor sees a process that it would not kill, nobody else ends the work of this process either. Pure.
 */

/**
 * What the main thread of a process did since the supervisor's look before.
 * - `scheduled`: its event loop turned.
 * - `computing`: it computed without a turn of its event loop.
 * - `starved`: it was ready to compute and got no core.
 * - `stopped`: it neither computed nor waited for a core. It is stopped (SIGSTOP), or sleeps in a call.
 */
export type ProcessState = 'scheduled' | 'computing' | 'starved' | 'stopped';

/** The last look of a supervisor at a process that it watches. */
export interface ProcessLook {
  /** Name of the process, the same that it registers with, such as `runtime-1` or `gpu-host-1@east`. */
  readonly name: string;
  readonly pid: number;
  readonly state: ProcessState;
  /** Time since the last turn of the event loop, ms; 0 for `scheduled`. */
  readonly silentMs: number;
}

/** A process that has ended, and the reason in words, such as `signal SIGKILL`. */
export interface ProcessEnd {
  readonly name: string;
  readonly pid: number;
  readonly why: string;
  /** Time from its last sign of life to the supervisor until its end, ms. */
  readonly silentMs: number;
}

/** What the supervisor of a machine publishes about its processes. It is valid while the supervisor renews the machine's lease. */
export interface MachineLooks {
  readonly running: readonly ProcessLook[];
  /** The ends of the last minute, oldest first. */
  readonly ended: readonly ProcessEnd[];
}

/** The maximum silence that a supervisor's looks excuse, ms. Then the work of the process ends, although the process lives. */
export const MAX_EXCUSED_MS = 60_000;

/** At least so many checks, one after the first, must see the event loop of a process turn before the process is lost. */
const CHECKS_PER_GRACE = 3;

/** A sign of life that is missing: when it was first missed, and how much of the time since counts. */
export interface Lateness {
  /** Time of the first check that missed the sign of life, by a monotonic clock, ms. */
  readonly sinceMs: number;
  readonly checkedAtMs: number;
  /** Time for which the process could have given its sign of life, ms: its event loop turned. */
  readonly countedMs: number;
}

interface LatenessLimits {
  /** Silence that the peer had allowed before the first check, ms. It counts towards `MAX_EXCUSED_MS`. */
  readonly allowedMs: number;
  /** Time for which the event loop of a process may turn without the sign of life, ms. A process that comes back needs some of it. */
  readonly graceMs: number;
}

/** `wait`: the process is excused, or may still give its sign of life. `lost`: its work ends, for the reason `why`, in words. */
export type LatenessVerdict =
  | { readonly kind: 'wait'; readonly state: ProcessState; readonly silentMs: number }
  | { readonly kind: 'lost'; readonly why: string; readonly silentMs: number };

/**
 * Decides at a check whether a process that misses its sign of life is lost:
 * - A process without a look is lost: its supervisor is gone or does not watch it, or the machine cannot be reached or is starved as a whole.
 * - A process that computes, is starved or is stopped waits: its supervisor kills it when that lasts too long, except that it kills no starved process.
 * - A process whose event loop turns is lost after `graceMs` of turning.
 * - No process is excused for longer than `MAX_EXCUSED_MS`.
 *
 * @param before the result of the check before; undefined at the first check
 * @param look the supervisor's last look, or its report of the end; undefined without a valid one
 */
export function judgeLateness(
  before: Lateness | undefined,
  nowMs: number,
  look: ProcessLook | ProcessEnd | undefined,
  { allowedMs, graceMs }: LatenessLimits,
): { readonly lateness: Lateness; readonly verdict: LatenessVerdict } {
  const sinceMs = before?.sinceMs ?? nowMs;
  const silentMs = Math.round(allowedMs + nowMs - sinceMs);
  const turned = look !== undefined && 'state' in look && look.state === 'scheduled';
  // Between two checks that are far apart, the process may have been starved.
  const passedMs = before ? Math.min(nowMs - before.checkedAtMs, graceMs / CHECKS_PER_GRACE) : 0;
  const countedMs = (before?.countedMs ?? 0) + (turned ? passedMs : 0);
  const lateness = { sinceMs, checkedAtMs: nowMs, countedMs };
  const lost = (why: string) => ({ lateness, verdict: { kind: 'lost', why, silentMs } as const });
  if (look === undefined)
    return lost(`it gave no sign of life for ${seconds(silentMs)}, and its supervisor reported nothing of it`);
  if ('why' in look) return lost(`it ended: ${look.why}`);
  if (silentMs >= MAX_EXCUSED_MS)
    return lost(
      `it gave no sign of life for ${seconds(silentMs)} (limit ${seconds(MAX_EXCUSED_MS)}); ${LAST_SEEN[look.state]}`,
    );
  if (turned && countedMs >= graceMs)
    return lost(`it gave no sign of life for ${seconds(silentMs)}, although ${LAST_SEEN.scheduled}`);
  return { lateness, verdict: { kind: 'wait', state: look.state, silentMs } };
}

/** The look at a process, or its end, among those of its machine. */
export function lookAt(
  looks: MachineLooks | null,
  matches: (process: { readonly name: string; readonly pid: number }) => boolean,
): ProcessLook | ProcessEnd | undefined {
  return looks?.running.find(matches) ?? looks?.ended.findLast(matches);
}

/** The states in words, for the end of a sentence about the process. */
const LAST_SEEN: Readonly<Record<ProcessState, string>> = {
  scheduled: 'its process runs',
  computing: 'its process computed without a break',
  starved: 'its process got no core',
  stopped: 'its process was stopped',
};

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
