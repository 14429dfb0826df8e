/**
 * Time during which GPU hosts hold calls of a family, because they preempted it or bring its pages back from disk. Holds of several inferlets,
 * models and hosts overlap; time counts once. The runtime's own clock measures it, from one notice of a host to the next.
 */
export class HeldTime {
  readonly #now: () => number;
  readonly #watchers = new Set<() => void>();
  #holds = 0;
  #endedMs = 0;
  #sinceMs = 0;

  /** @param now a clock in milliseconds that never goes back */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The clock's time, milliseconds. */
  get nowMs(): number {
    return this.#now();
  }

  /** True while calls of at least one inferlet are held. */
  get isHeld(): boolean {
    return this.#holds > 0;
  }

  /** Milliseconds held so far, the present hold included. */
  get totalMs(): number {
    return this.#endedMs + (this.#holds > 0 ? this.#now() - this.#sinceMs : 0);
  }

  /** Records that a host holds calls of an inferlet from now on (`true`), or holds them no longer (`false`). */
  change(isHeld: boolean): void {
    const wasHeld = this.#holds > 0;
    if (!wasHeld) this.#sinceMs = this.#now();
    this.#holds += isHeld ? 1 : -1;
    if (this.#holds < 0) throw new Error('a hold ended that had not begun');
    if (wasHeld === this.#holds > 0) return;
    if (wasHeld) this.#endedMs += this.#now() - this.#sinceMs;
    for (const onChange of [...this.#watchers]) onChange();
  }

  /** Calls `onChange` whenever `isHeld` has changed, until the returned function is called. */
  watch(onChange: () => void): () => void {
    this.#watchers.add(onChange);
    return () => this.#watchers.delete(onChange);
  }
}
