/** What forgets when memory is short: it can be made again. */
export interface Forgetful {
  forget(): void;
}

/** Bounds what things of one kind take together in a worker: when that is too much, all are forgotten at once. */
export class MemoryBound<T extends Forgetful> {
  readonly #mostBytes: number;
  readonly #holders = new Map<T, number>();
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** Counts what `holder` is about to take, after room was made for it. */
  take(holder: T, bytes: number): void {
    if (this.#bytes + bytes > this.#mostBytes) for (const other of [...this.#holders.keys()]) this.forget(other);
    this.#bytes += bytes;
    this.#holders.set(holder, (this.#holders.get(holder) ?? 0) + bytes);
  }

  forget(holder: T): void {
    this.#bytes -= this.#holders.get(holder) ?? 0;
    this.#holders.delete(holder);
    holder.forget();
  }
}
