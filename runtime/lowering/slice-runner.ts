import { DEFAULT_SLICE_POLICY, type SlicePolicy, SliceQueue } from './slices.ts';

/** A suspended computation. */
export interface Resumable {
  resume(): void;
}

/** Longest wait before the runner asks again whether the device is busy. */
const RECHECK_MS = 5;

/**
 * Runs a {@link SliceQueue} on the event loop. Each turn of the event loop resumes one task for a slice (at most about 1 ms of computing), so that
 * sockets and timers are served between slices.
 */
export class SliceRunner {
  readonly #queue: SliceQueue<Resumable>;
  readonly #busy: () => boolean;
  #immediate: NodeJS.Immediate | null = null;
  #turnNumber = 0;
  #isTurnEndScheduled = false;
  #timer: NodeJS.Timeout | null = null;

  /** @param busy returns true while the device (a GPU) has work of other inferlets: tasks without credit then get less time */
  constructor(busy: () => boolean = () => false, policy: SlicePolicy = DEFAULT_SLICE_POLICY) {
    this.#queue = new SliceQueue(policy);
    this.#busy = busy;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /** Number of waiting tasks with credit. Credit is computing time that a task may use at once, see `slices.ts`. */
  get bursting(): number {
    return this.#queue.bursting;
  }

  /** Number of waiting tasks without credit. */
  get spinners(): number {
    return this.#queue.spinners;
  }

  /** Number of the current turn of the event loop; turns without a call of this method are not counted. */
  turn(): number {
    if (!this.#isTurnEndScheduled) {
      this.#isTurnEndScheduled = true;
      setImmediate(() => {
        this.#isTurnEndScheduled = false;
        this.#turnNumber++;
      });
    }
    return this.#turnNumber;
  }

  /** Suspends `task`, which has computed for `usedMs`; calls `task.resume` when its turn comes. */
  add(task: Resumable, usedMs: number): void {
    this.#queue.add(task, usedMs, performance.now());
    this.#schedule();
  }

  remove(task: Resumable): void {
    this.#queue.remove(task);
  }

  #schedule(): void {
    if (this.#immediate) return;
    if (this.#timer) {
      clearTimeout(this.#timer);
      this.#timer = null;
    }
    this.#immediate = setImmediate(() => {
      this.#immediate = null;
      this.#runNext();
    });
  }

  #runNext(): void {
    const now = performance.now();
    const decision = this.#queue.next(now, this.#busy());
    if (decision.kind === 'idle') return;
    if (decision.kind === 'wait') {
      this.#timer = setTimeout(
        () => {
          this.#timer = null;
          this.#runNext();
        },
        Math.min(RECHECK_MS, Math.max(1, decision.untilMs - now)),
      );
      return;
    }
    decision.task.resume();
    if (this.#queue.length > 0) this.#schedule();
  }
}
