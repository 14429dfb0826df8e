/** A holder of computed values. It can free their memory, and compute them again later. */
export interface Forgetful {
  forget(): void;
}

/** Bounds the memory that all holders of one kind take together in a worker. Beyond the bound, all holders forget at once. */
export class MemoryBound<T extends Forgetful> {
  readonly #mostBytes: number;
  readonly #holders = new Map<T, number>();
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** Counts `bytes` that `holder` is about to take. If they would exceed the bound, all holders forget first. */
  take(holder: T, bytes: number): void {
    if (this.#bytes + bytes > this.#mostBytes) for (const each of [...this.#holders.keys()]) this.forget(each);
    this.#bytes += bytes;
    this.#holders.set(holder, (this.#holders.get(holder) ?? 0) + bytes);
  }

  forget(holder: T): void {
    this.#bytes -= this.#holders.get(holder) ?? 0;
    this.#holders.delete(holder);
    holder.forget();
  }
}
