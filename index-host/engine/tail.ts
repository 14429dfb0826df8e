import type { Metric } from '../protocol/types.ts';
import { byScore, dot, norm, type Ranked, squaredDistance } from './similarity.ts';
import type { Pieces } from './sizes.ts';

/** Rows for which an empty tail has memory. */
const FIRST_ROWS = 64;
/** Values compared in one piece, which takes about a millisecond. */
const VALUES_AT_ONCE = 2 ** 20;

/** The newest vectors of an index, in the order of their keys, compared one by one: the graph does not have them yet. */
export class Tail {
  readonly #dimensions: number;
  readonly #metric: Metric;
  #matrix: Float32Array;
  #norms: Float64Array;
  #keys: number[] = [];
  /** Number of rows at the front that `take` has returned, or has skipped because `delete` had removed them. */
  #takenRows = 0;
  /** Row of each key. A key that `take` or `delete` has removed is not in the map. */
  readonly #rows = new Map<number, number>();

  constructor(dimensions: number, metric: Metric) {
    this.#dimensions = dimensions;
    this.#metric = metric;
    this.#matrix = new Float32Array(FIRST_ROWS * dimensions);
    this.#norms = new Float64Array(FIRST_ROWS);
  }

  get size(): number {
    return this.#rows.size;
  }

  get bytes(): number {
    return this.#matrix.byteLength + this.#norms.byteLength;
  }

  /** @param key larger than every earlier one */
  push(key: number, vector: Float32Array): void {
    if (this.#keys.length === this.#norms.length) this.#grow();
    const row = this.#keys.length;
    this.#matrix.set(vector, row * this.#dimensions);
    this.#norms[row] = norm(vector);
    this.#keys.push(key);
    this.#rows.set(key, row);
  }

  /** Removes a vector; returns false when the tail has no such key. */
  delete(key: number): boolean {
    return this.#rows.delete(key);
  }

  /** Removes and returns the oldest vector; null when the tail is empty. */
  take(): { readonly key: number; readonly vector: Float32Array } | null {
    while (this.#takenRows < this.#keys.length) {
      const row = this.#takenRows++;
      const key = this.#keys[row] as number;
      if (!this.#rows.delete(key)) continue;
      return { key, vector: this.#matrix.slice(row * this.#dimensions, (row + 1) * this.#dimensions) };
    }
    this.#compact();
    return null;
  }

  /** All keys with the similarity of their vectors to `vector`, the best first. */
  *ranked(vector: Float32Array): Pieces<Ranked[]> {
    const rowsAtOnce = Math.ceil(VALUES_AT_ONCE / this.#dimensions);
    const length = norm(vector);
    const found: Ranked[] = [];
    for (const [key, row] of this.#rows) {
      found.push({ key, score: this.#similarity(vector, length, row) });
      // Meanwhile, `#compact` may give the keys other rows. The keys keep their order in the map, so this loop visits
      // each remaining key once.
      if (found.length % rowsAtOnce === 0) yield;
    }
    return found.sort(byScore);
  }

  /** The same as the function `similarity`, but with known lengths of both vectors. */
  #similarity(vector: Float32Array, length: number, row: number): number {
    const at = row * this.#dimensions;
    // `0 - x` instead of `-x`: equal vectors get 0 and not -0.
    if (this.#metric === 'euclidean') return 0 - squaredDistance(vector, this.#matrix, at);
    const product = dot(vector, this.#matrix, at);
    return this.#metric === 'dot-product' ? product : product / (length * (this.#norms[row] as number) || 1);
  }

  /** Makes room for more rows: by removing gaps if that leaves more than half of the rows free, else by doubling the memory. */
  #grow(): void {
    this.#compact();
    if (this.#keys.length * 2 < this.#norms.length) return;
    const matrix = new Float32Array(this.#matrix.length * 2);
    matrix.set(this.#matrix);
    const norms = new Float64Array(this.#norms.length * 2);
    norms.set(this.#norms);
    [this.#matrix, this.#norms] = [matrix, norms];
  }

  /** Moves the remaining rows to the front. */
  #compact(): void {
    const keys: number[] = [];
    for (const [key, row] of this.#rows) {
      const to = keys.length;
      this.#matrix.copyWithin(to * this.#dimensions, row * this.#dimensions, (row + 1) * this.#dimensions);
      this.#norms[to] = this.#norms[row] as number;
      this.#rows.set(key, to);
      keys.push(key);
    }
    this.#keys = keys;
    this.#takenRows = 0;
  }
}
