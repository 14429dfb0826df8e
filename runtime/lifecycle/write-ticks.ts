/**
 * Longest time that shown events wait for a write shared with other attempts. A dying runtime may lose 250 ms of shown events (`outbox.ts`):
 * 150 ms of waiting here, and 100 ms for a slow Redis.
 */
const WRITE_MS = 150;

/** Makes all attempts of a process write their shown events in the same turn of the event loop, so that one store call carries them. */
export class WriteTicks {
  readonly #pendingWrites = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** Calls `write` once, at the next tick, unless `delete` removes it before. */
  add(write: () => void): void {
    this.#pendingWrites.add(write);
    this.#timer ??= setTimeout(() => this.#tick(), WRITE_MS);
  }

  delete(write: () => void): void {
    this.#pendingWrites.delete(write);
  }

  #tick(): void {
    this.#timer = undefined;
    const writes = [...this.#pendingWrites];
    this.#pendingWrites.clear();
    for (const write of writes) write();
  }
}
