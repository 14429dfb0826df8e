/** Holds memory that it can free when memory is short, and compute again. */
export interface Forgetful {
  forget(): void;
}

/** Bounds the memory of all holders of one kind in a worker: beyond the bound, all of them forget at once. */
export class MemoryBound<T extends Forgetful> {
  readonly #mostBytes: number;
  readonly #holders = new Map<T, number>();
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** Makes room for what `holder` is about to take, and counts it. */
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
