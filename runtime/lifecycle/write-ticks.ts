/** How long what was shown waits to be written with what others have shown. */
const WRITE_MS = 50;

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
