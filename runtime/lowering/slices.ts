/**
 * Decides which inferlet computes next. Pure: time comes in as an argument.
 *
 * An inferlet that computes longer than a slice is suspended and queued here. Each inferlet has a credit of computing time that refills slowly.
 * An inferlet with credit (it computes in bursts: parsing, constrained decoding) continues at the next turn of the event loop; one without credit is
 * a *spinner*. While the device has work, spinners together get `spinnerShare` of the thread, in turns; otherwise they get all time that remains.
 */
export interface SlicePolicy {
  /** Length of a slice. The queue does not enforce it: `execution.ts` ends slices. */
  readonly sliceMs: number;
  /** Initial and maximum credit of an inferlet. */
  readonly burstMs: number;
  /** Credit gained per millisecond outside of this queue. */
  readonly refill: number;
  /** Part of the thread that all spinners together get while the device is busy. */
  readonly spinnerShare: number;
}

export const DEFAULT_SLICE_POLICY: SlicePolicy = { sliceMs: 1, burstMs: 50, refill: 0.02, spinnerShare: 0.03 };

interface Entry {
  /** Credit, in ms. */
  credit: number;
  /** Time at which the task last entered or left the queue. */
  since: number;
}

export type Decision<T> =
  | { readonly kind: 'run'; readonly task: T; readonly spinner: boolean }
  | { readonly kind: 'wait'; readonly untilMs: number }
  | { readonly kind: 'idle' };

/** The queue of suspended tasks. A task is in it at most once. */
export class SliceQueue<T extends object> {
  readonly #policy: SlicePolicy;
  readonly #credits = new WeakMap<T, Entry>();
  readonly #bursting: T[] = [];
  readonly #spinning: T[] = [];
  #spinnersMayRunAtMs = 0;

  constructor(policy: SlicePolicy = DEFAULT_SLICE_POLICY) {
    this.#policy = policy;
  }

  get length(): number {
    return this.#bursting.length + this.#spinning.length;
  }

  /** Number of waiting tasks with credit. */
  get bursting(): number {
    return this.#bursting.length;
  }

  /** Number of waiting tasks without credit. */
  get spinners(): number {
    return this.#spinning.length;
  }

  /** Queues a task that has just computed for `usedMs`. */
  add(task: T, usedMs: number, nowMs: number): void {
    const entry = this.#credits.get(task) ?? { credit: this.#policy.burstMs, since: nowMs };
    this.#credits.set(task, entry);
    entry.credit = Math.min(this.#policy.burstMs, entry.credit + (nowMs - entry.since) * this.#policy.refill) - usedMs;
    entry.since = nowMs;
    if (entry.credit > 0) {
      this.#bursting.push(task);
      return;
    }
    // The bound keeps one long slice from making an inferlet a spinner forever.
    entry.credit = Math.max(entry.credit, -this.#policy.burstMs);
    this.#spinning.push(task);
    // The pause that keeps spinners to their share: at a share of 3 %, 32 ms after each 1 ms of computing.
    this.#spinnersMayRunAtMs = Math.max(this.#spinnersMayRunAtMs, nowMs + usedMs * (1 / this.#policy.spinnerShare - 1));
  }

  remove(task: T): void {
    for (const queue of [this.#bursting, this.#spinning]) {
      const at = queue.indexOf(task);
      if (at >= 0) queue.splice(at, 1);
    }
  }

  /** Takes the task that runs now. @param busy true while the device has work, or will soon get work from other inferlets */
  next(nowMs: number, busy: boolean): Decision<T> {
    const bursting = this.#bursting.shift();
    if (bursting) return this.#run(bursting, false, nowMs);
    if (this.#spinning.length === 0) return { kind: 'idle' };
    if (busy && nowMs < this.#spinnersMayRunAtMs) return { kind: 'wait', untilMs: this.#spinnersMayRunAtMs };
    const spinning = this.#spinning.shift();
    return spinning ? this.#run(spinning, true, nowMs) : { kind: 'idle' };
  }

  #run(task: T, spinner: boolean, nowMs: number): Decision<T> {
    const entry = this.#credits.get(task);
    if (entry) entry.since = nowMs;
    return { kind: 'run', task, spinner };
  }
}

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
