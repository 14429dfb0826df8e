/**
 * Longest wait of shown events for a write shared with other attempts. A dying runtime may lose 250 ms of shown events (`outbox.ts`); the
 * other 100 ms allow for a slow Redis.
 */
const WRITE_MS = 150;

/** Makes all attempts of a process write their shown events in the same turn of the event loop, so that one store call carries them. */
export class WriteTicks {
  readonly #due = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** Calls `write` at the next tick. */
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
