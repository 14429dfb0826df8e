import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Deadline } from '../host/inferlet.ts';
import type { HeldTime } from './held-time.ts';
import type { Stop } from './stopping.ts';

/** Longest timer of Node. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The wall time of one run. It stands still while the run's family is preempted and has calls to make: the platform took that time. A hold
 * of one member's calls stops the wall time of the whole family, so a bound is needed: all holds together stop it for at most
 * `limits.wallMs`, and a run takes at most twice its limit. The deadline of the invocation itself (`submittedAt + deadlineMs`) does not move,
 * so a preempted family ends, too. The scheduler's worker enforces this deadline for the root, whose end also ends its children.
 */
export class WallTime implements Deadline {
  readonly #job: InvocationJob;
  readonly #startedAt: number;
  readonly #heldTime: HeldTime;
  readonly #heldBeforeMs: number;
  readonly #clock: () => number;

  /**
   * Made at the start of the run: the time before, such as that of the launch, does not count.
   *
   * @param clock of the platform, milliseconds since the Unix epoch, as in the job
   */
  constructor(job: InvocationJob, heldTime: HeldTime, clock: () => number) {
    this.#job = job;
    this.#startedAt = clock();
    this.#heldTime = heldTime;
    this.#heldBeforeMs = heldTime.totalMs;
    this.#clock = clock;
  }

  /**
   * The end of the wall time or of the invocation, whichever is earlier, in milliseconds since the Unix epoch. A hold that counts moves it,
   * also while the hold lasts.
   */
  get at(): number {
    const { submittedAt, deadlineMs, limits } = this.#job;
    const heldMs = this.#heldTime.totalMs - this.#heldBeforeMs;
    return Math.min(submittedAt + deadlineMs, this.#startedAt + limits.wallMs + Math.min(heldMs, limits.wallMs));
  }

  get leftMs(): number {
    return Math.max(0, this.at - this.#clock());
  }

  /**
   * Starts the timer.
   *
   * @param stop called once, when the time is used up
   * @param onMoved called with each new deadline, when a hold has ended
   * @returns the function that ends the timer
   */
  limit(stop: (reason: Stop) => void, onMoved: (at: number) => void): () => void {
    const { parent } = this.#job;
    const { wallMs } = this.#job.limits;
    const heldTime = this.#heldTime;
    const [fromMs, heldBeforeMs] = [heldTime.nowMs, heldTime.totalMs];
    let timer: NodeJS.Timeout | undefined;
    let isOver = false;
    const end = () => {
      isOver = true;
      stop(usedUp(wallMs, parent));
    };
    const start = () => {
      clearTimeout(timer);
      if (isOver) return;
      // A hold that still lasts adds at most the rest of the limit.
      const addedMs = heldTime.isHeld ? wallMs : Math.min(wallMs, heldTime.totalMs - heldBeforeMs);
      const leftMs = wallMs + addedMs - (heldTime.nowMs - fromMs);
      timer = setTimeout(end, Math.min(Math.max(0, leftMs), MAX_TIMER_MS));
    };
    const unwatch = heldTime.watch(() => {
      start();
      if (!heldTime.isHeld) onMoved(this.at);
    });
    start();
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
