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
