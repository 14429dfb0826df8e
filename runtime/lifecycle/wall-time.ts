import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Deadline } from '../host/session/inferlet.ts';
import type { Stop } from './stopping.ts';

/** Longest timer that Node supports. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The wall time of one run. It stands still while GPU hosts hold calls of the run's family (see `HeldTime`), because the platform took that time.
 * A hold of one member's calls stops the wall time of the whole family. So that the other members do not gain time without end, all holds
 * together stop it for at most `limits.wallMs`: a run takes at most twice its limit. Holds do not move the deadline of the invocation itself
 * (`submittedAt + deadlineMs`), so a preempted family ends, too. The scheduler's worker enforces that deadline for the root. The end of the root
 * also ends its children.
 */
export class WallTime implements Deadline {
  readonly #job: InvocationJob;
  readonly #startedAt: number;
  readonly #heldTime: HeldTime;
  readonly #heldBeforeMs: number;
  readonly #clock: () => number;

  /**
   * Begins the wall time. Call it when the instance is ready: the time of the launch does not count.
   *
   * @param clock the platform's clock, by which the job's times were read, milliseconds since the Unix epoch
   */
  constructor(job: InvocationJob, heldTime: HeldTime, clock: () => number) {
    this.#job = job;
    this.#startedAt = clock();
    this.#heldTime = heldTime;
    this.#heldBeforeMs = heldTime.totalMs;
    this.#clock = clock;
  }

  /**
   * The end of the wall time or the deadline of the invocation, whichever is earlier, in milliseconds since the Unix epoch. While a hold
   * stops the wall time, its end moves with the clock.
   */
  get at(): number {
    const { submittedAt, deadlineMs, limits } = this.#job;
    const heldMs = this.#heldTime.totalMs - this.#heldBeforeMs;
    return Math.min(submittedAt + deadlineMs, this.#startedAt + limits.wallMs + Math.min(heldMs, limits.wallMs));
  }

  /** Milliseconds until `at`; not below 0. */
  get leftMs(): number {
    return Math.max(0, this.at - this.#clock());
  }

  /**
   * Starts the timer of the wall time. The timer does not watch the deadline of the invocation.
   *
   * @param stop called once, when the wall time is used up
   * @param onMoved called with the new value of `at` whenever the last hold of the family ends
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
    const setTimer = () => {
      clearTimeout(timer);
      if (isOver) return;
      // The end of the present hold is unknown. If the hold lasts, it adds at most `wallMs`.
      const addedMs = heldTime.isHeld ? wallMs : Math.min(wallMs, heldTime.totalMs - heldBeforeMs);
      const leftMs = wallMs + addedMs - (heldTime.nowMs - fromMs);
      timer = setTimeout(end, Math.min(Math.max(0, leftMs), MAX_TIMER_MS));
    };
    const unwatch = heldTime.watch(() => {
      setTimer();
      if (!heldTime.isHeld) onMoved(this.at);
    });
    setTimer();
    return () => {
      clearTimeout(timer);
      unwatch();
    };
  }
}

function usedUp(wallMs: number, parent: string | undefined): Stop {
  const origin = `manifest: limits.wallMs${parent === undefined ? '' : ', or what its parent had left'}`;
  const message = `The inferlet ran longer than its ${wallMs} ms (${origin}).`;
  return { code: 'deadline-exceeded', cause: 'wall-time', message, figures: { limitMs: wallMs } };
}

/**
 * Time during which GPU hosts hold calls of a family, because they preempted it or bring its pages back from disk. A hold begins when one host
 * begins to hold calls of one inferlet, and ends when that host holds none of them. Overlapping holds count once. The runtime's own clock
 * measures the time between a host's notices.
 */
export class HeldTime {
  readonly #now: () => number;
  /** Callbacks for changes of `isHeld`. */
  readonly #watchers = new Set<() => void>();
  #openHolds = 0;
  /** Held time before the present period of holds. */
  #earlierMs = 0;
  /** Start of the present period of holds, by `#now`. */
  #heldFromMs = 0;

  /** @param now a clock in milliseconds that never goes back */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The present time of the constructor's clock. */
  get nowMs(): number {
    return this.#now();
  }

  /** True while calls of at least one inferlet are held. */
  get isHeld(): boolean {
    return this.#openHolds > 0;
  }

  /** Milliseconds held so far, the present period included. */
  get totalMs(): number {
    return this.#earlierMs + (this.isHeld ? this.#now() - this.#heldFromMs : 0);
  }

  /** Records that a hold begins now (`true`) or ends now (`false`). */
  change(isHeld: boolean): void {
    const wasHeld = this.isHeld;
    if (!wasHeld) this.#heldFromMs = this.#now();
    this.#openHolds += isHeld ? 1 : -1;
    if (this.#openHolds < 0) throw new Error('a hold ended that had not begun');
    if (wasHeld === this.isHeld) return;
    if (wasHeld) this.#earlierMs += this.#now() - this.#heldFromMs;
    for (const onChange of [...this.#watchers]) onChange();
  }

  /** Calls `onChange` whenever `isHeld` has changed, until the returned function is called. */
  watch(onChange: () => void): () => void {
    this.#watchers.add(onChange);
    return () => this.#watchers.delete(onChange);
  }
}
