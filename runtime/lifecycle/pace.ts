export interface PacePolicy {
  /** Maximum invocations at once, when the thread keeps up. */
  readonly most: number;
  /** Lowest limit, unless `most` is lower: other load on the machine must not stop a runtime. */
  readonly least: number;
  /** Lag above which the limit is cut, milliseconds. */
  readonly lagMs: number;
}

export const DEFAULT_LEAST = 32;
export const DEFAULT_LAG_MS = 10;
/** The limit after a review with lag, as a share of the running invocations. */
const DOWN = 0.75;
/** Growth factor of the limit at a review without lag. */
const UP = 1.25;
/** Lag below this part of `lagMs` raises the limit. */
const EASE = 0.5;

/**
 * Limits how many invocations a runtime runs for tenants that hold more than a few slots. Pure: the thread's lag is an argument.
 *
 * The calls of all of a runtime's inferlets share one thread, which can hold a thousand inferlets that wait for devices, tools or clients.
 * Once their work fills the thread, more inferlets only add latency. So the limit follows the lag of the event loop, as congestion control
 * follows loss: multiplicative decrease with lag, multiplicative increase without. A cut ends no invocation, so the next cut
 * waits until no more invocations run than the limit allows. Few invocations cannot cause the lag, so the limit is not cut while few run.
 */
export class Pace {
  readonly #policy: PacePolicy;
  #limit: number;

  constructor(policy: PacePolicy) {
    this.#policy = policy;
    this.#limit = policy.most;
  }

  get limit(): number {
    return this.#limit;
  }

  /** True when the limit is at its maximum. */
  get isOpen(): boolean {
    return this.#limit === this.#policy.most;
  }

  /** True when a review may cut the limit with this many running; otherwise the lag need not be measured. */
  mayCut(running: number): boolean {
    return running > this.#policy.least;
  }

  /** Updates the limit from the lag since the last review and the number of running invocations; returns the new limit. */
  review(lagMs: number, running: number): number {
    const { most, least, lagMs: bound } = this.#policy;
    if (lagMs > bound) {
      if (running > least && running <= this.#limit) this.#limit = Math.max(least, Math.floor(running * DOWN));
    } else if (lagMs < bound * EASE) {
      this.#limit = Math.min(most, Math.ceil(this.#limit * UP));
    }
    return this.#limit;
  }
}
