import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Deadline } from '../host/inferlet.ts';
import type { HeldTime } from './held-time.ts';
import type { Stop } from './stopping.ts';

/** Longest timer of Node. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The wall time of one run. It stands still while the run's family is preempted and has calls to make: the platform took that time. The
 * deadline of the invocation itself (`submittedAt + deadlineMs`) does not move, so a preempted family comes to an end, too; the
 * scheduler's worker enforces it for the root, which takes its children along.
 */
export class WallTime implements Deadline {
  readonly #job: InvocationJob;
  readonly #startedAt: number;
  readonly #held: HeldTime;
  readonly #heldBeforeMs: number;

  /** @param startedAt of the run, milliseconds since the Unix epoch */
  constructor(job: InvocationJob, startedAt: number, held: HeldTime) {
    this.#job = job;
    this.#startedAt = startedAt;
    this.#held = held;
    this.#heldBeforeMs = held.totalMs;
  }

  /** The earlier of the ends of wall time and invocation, milliseconds since the Unix epoch; later after, and during, each hold. */
  get at(): number {
    const { submittedAt, deadlineMs, limits } = this.#job;
    const heldMs = this.#held.totalMs - this.#heldBeforeMs;
    return Math.min(submittedAt + deadlineMs, this.#startedAt + limits.wallMs + heldMs);
  }

  /**
   * Starts the time.
   *
   * @param stop called once, when it is used up
   * @param moved called with each new deadline, when a hold has ended
   * @returns the function that ends it
   */
  limit(stop: (reason: Stop) => void, moved: (at: number) => void): () => void {
    const { limits, parent } = this.#job;
    const held = this.#held;
    let leftMs = limits.wallMs;
    let goesSinceMs = 0;
    let timer: NodeJS.Timeout | undefined;
    const go = () => {
      goesSinceMs = held.nowMs;
      timer = setTimeout(() => stop(usedUp(limits.wallMs, parent)), Math.min(Math.max(0, leftMs), MAX_TIMER_MS));
    };
    const unwatch = held.watch(() => {
      if (held.isHeld) {
        clearTimeout(timer);
        leftMs -= held.nowMs - goesSinceMs;
      } else {
        go();
        moved(this.at);
      }
    });
    if (!held.isHeld) go();
    return () => {
      clearTimeout(timer);
      unwatch();
    };
  }
}

function usedUp(wallMs: number, parent: string | undefined): Stop {
  const origin = `manifest: limits.wallMs${parent === undefined ? '' : ', or what its parent had left'}`;
  const message = `The inferlet ran longer than its ${wallMs} ms (${origin}).`;
  return { code: 'deadline-exceeded', cause: 'wall-time', message };
}
