/**
 * How long what was shown waits to be written with what others have shown. Some 250 ms of it may be lost with the runtime (`outbox.ts`); what is left
 * of them is for a Redis that is slow.
 */
const WRITE_MS = 150;

/** Has all attempts of a process write what they have shown in the same turn of the event loop: one call of the store carries all of it. */
export class WriteTicks {
  readonly #due = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** Calls back at the next tick. */
  add(write: () => void): void {
    this.#due.add(write);
    this.#timer ??= setTimeout(() => this.#tick(), WRITE_MS);
  }

  delete(write: () => void): void {
    this.#due.delete(write);
  }

  #tick(): void {
    this.#timer = undefined;
    const due = [...this.#due];
    this.#due.clear();
    for (const write of due) write();
  }
}
