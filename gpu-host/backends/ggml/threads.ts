/** Least time of steps that is judged together: shorter ones say little. */
const WINDOW_MS = 60;
/** Part of their time that threads must have a core, so that one more thread is worth its wait. */
const CROWDED = 0.8;
/** Windows after which one more thread is tried again; doubled after each vain try, up to a bound. */
const FIRST_RETRY = 8;
const LAST_RETRY = 128;

/**
 * The number of threads that compute a step. ggml's threads wait for each other by spinning, many times a step: where other programs keep the cores
 * busy, a thread without a core lets all others spin for as long as the system makes it wait. Since threads spin, they use as much processor time as the
 * step takes, each; less means that some had no core. Then the next steps have one thread less.
 */
export class ThreadCount {
  readonly #most: number;
  #count: number;
  #wallMs = 0;
  #cpuMs = 0;
  #calmWindows = 0;
  #retryAfter = FIRST_RETRY;
  #isTrial = false;

  constructor(most: number) {
    this.#most = most;
    this.#count = most;
  }

  get count(): number {
    return this.#count;
  }

  /** Notes a step of `count` threads: its duration, and the processor time of this process meanwhile. */
  note(wallMs: number, cpuMs: number): void {
    this.#wallMs += wallMs;
    this.#cpuMs += cpuMs;
    if (this.#wallMs < WINDOW_MS) return;
    const share = this.#cpuMs / (this.#wallMs * this.#count);
    this.#wallMs = 0;
    this.#cpuMs = 0;
    if (this.#count > 1 && share < CROWDED) {
      this.#count--;
      this.#calmWindows = 0;
      if (this.#isTrial) this.#retryAfter = Math.min(2 * this.#retryAfter, LAST_RETRY);
      this.#isTrial = false;
      return;
    }
    if (this.#isTrial) this.#retryAfter = FIRST_RETRY;
    this.#isTrial = false;
    if (this.#count === this.#most || ++this.#calmWindows < this.#retryAfter) return;
    this.#calmWindows = 0;
    this.#count++;
    this.#isTrial = true;
  }
}
