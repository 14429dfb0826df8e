import { Index, MetricKind, ScalarKind } from 'usearch';
import type { Metric } from '../protocol/types.ts';
import { norm } from './similarity.ts';

/** Parameters of the graph (Malkov and Yashunin, HNSW, 2018): links of a node, and the width of the searches for them and for queries. */
const CONNECTIVITY = 16;
const WIDTH_ADD = 128;
const WIDTH_SEARCH = 128;

const KINDS: Readonly<Record<Metric, MetricKind>> = {
  cosine: MetricKind.Cos,
  'dot-product': MetricKind.IP,
  euclidean: MetricKind.L2sq,
};

/** Bytes of one value of a stored vector: directions fit in 8 bits; vectors whose length counts take 16, and their values are at most `MAX_VALUE`. */
const VALUE_BYTES: Readonly<Record<Metric, 1 | 2>> = { cosine: 1, 'dot-product': 2, euclidean: 2 };

/** Approximate neighbours of a vector by key, of vectors with rounded values. It keeps deleted keys: the caller ignores them. */
export class Graph {
  readonly #index: Index;
  readonly #dimensions: number;
  readonly #metric: Metric;

  constructor(dimensions: number, metric: Metric) {
    this.#dimensions = dimensions;
    this.#metric = metric;
    this.#index = new Index({
      ...{
        dimensions,
        metric: KINDS[metric],
        multi: false,
        quantization: VALUE_BYTES[metric] === 1 ? ScalarKind.I8 : ScalarKind.F16,
      },
      ...{ connectivity: CONNECTIVITY, expansion_add: WIDTH_ADD, expansion_search: WIDTH_SEARCH },
    });
  }

  /** Number of keys, deleted ones included. */
  get size(): number {
    return Number(this.#index.size());
  }

  /** Bytes of memory, about. */
  get bytes(): number {
    const links = 4 * CONNECTIVITY * 3;
    return Number(this.#index.capacity()) * (VALUE_BYTES[this.#metric] * this.#dimensions + links);
  }

  add(key: number, vector: Float32Array): void {
    this.#index.add(BigUint64Array.of(BigInt(key)), this.#scaled(vector), 1);
  }

  /** Up to `count` keys near the vector. */
  near(vector: Float32Array, count: number): number[] {
    if (this.size === 0) return [];
    return Array.from(this.#index.search(this.#scaled(vector), Math.min(count, this.size), 1).keys, Number);
  }

  /** For `cosine` the vector's direction, so that its values are small whatever the length. */
  #scaled(vector: Float32Array): Float32Array {
    if (this.#metric !== 'cosine') return vector;
    const length = norm(vector);
    return vector.map((value) => value / (length || 1));
  }

  save(file: string): void {
    this.#index.save(file);
  }

  load(file: string): void {
    this.#index.load(file);
  }
}
