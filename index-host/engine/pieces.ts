/** Work in short pieces: the process runs other tenants' pieces between them. */
export type Pieces<T> = Generator<void, T, void>;

/** Work that cannot be cut. */
// biome-ignore lint/correctness/useYield: it is one piece.
export function* once<T>(work: () => T): Pieces<T> {
  return work();
}

/** Runs all pieces without a pause: the thread serves no other tenant meanwhile. Rejects with the work's error. */
export async function runToEnd<T>(work: Pieces<T>): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value as T;
  }
}
