/**
 * How many invocations a runtime has tenants fill that hold more than few. Pure: the thread's lag comes in as an argument.
 *
 * The calls of all of a runtime's inferlets share one thread. While they wait for devices, tools or clients it can hold a thousand; when their work fills it, more of them
 * make nothing faster and everything later: the token that is due, the next start, and the turn of another tenant. So the number follows the time for which
 * the thread leaves what is due waiting, as congestion control follows loss: down by a part, and up again by a part while there is time. It is cut no
 * further before the last cut is in force, since nobody is ended for it; and not at all while few run, who cannot be to blame.
 */
export interface PacePolicy {
  /** Invocations at once when the thread keeps up. */
  readonly most: number;
  /** Never fewer, if `most` allows it: so many run whatever else keeps the machine busy. */
  readonly least: number;
  /** Lag above which it takes fewer, milliseconds. */
  readonly lagMs: number;
}

export const DEFAULT_LEAST = 32;
export const DEFAULT_LAG_MS = 10;
/** Part of those that run that is kept after a review with lag. */
const DOWN = 0.75;
/** Growth at a review without. */
const UP = 1.25;
/** Below this part of `lagMs` there is time. */
const EASE = 0.5;

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

  /** Whether it takes as many as it may. */
  get isOpen(): boolean {
    return this.#limit === this.#policy.most;
  }

  /** Whether it may come to fewer while so many run: else nobody needs to measure the lag. */
  minds(running: number): boolean {
    return running > this.#policy.least;
  }

  /** Looks at the lag since the last review, and at how many run; answers how many may from now on. */
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
