import { readdirSync, rmSync } from 'node:fs';
import { open, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { Index, MetricKind, ScalarKind } from 'usearch';
import { MAX_VALUE } from '../protocol/messages.ts';
import type { Metric } from '../protocol/types.ts';
import type { Records } from './records.ts';
import { norm } from './similarity.ts';
import { type Pieces, ROWS_AT_ONCE } from './sizes.ts';

/** Links per node of HNSW (Malkov and Yashunin, 2018). */
const CONNECTIVITY = 16;
/** Width of the search in an addition. */
const WIDTH_ADD = 128;
/** Width of the search in a query. */
const WIDTH_SEARCH = 128;

const KINDS: Readonly<Record<Metric, MetricKind>> = {
  cosine: MetricKind.Cos,
  'dot-product': MetricKind.IP,
  euclidean: MetricKind.L2sq,
};

/** Bytes of one value of a stored vector: 8 bits are enough for directions. Metrics that use the length take 16 bits, up to `MAX_VALUE`. */
const VALUE_BYTES: Readonly<Record<Metric, 1 | 2>> = { cosine: 1, 'dot-product': 2, euclidean: 2 };

/**
 * The scale that brings vectors of about this length to a length from 1 to 2. Without it, 16 bits would round small values to zero, and the
 * distance (1 − product) of all short vectors would be 1.
 */
export const scaleFor = (length: number): number => (length > 0 ? 2 ** -Math.floor(Math.log2(length)) : 1);

/** Finds approximate neighbours of a vector among rounded vectors, by key. It keeps deleted keys, which the caller must ignore. */
export class Graph {
  /** A power of two that multiplies all vectors. One factor for all does not change the order of their distances. */
  readonly scale: number;
  readonly #index: Index;
  readonly #dimensions: number;
  readonly #metric: Metric;

  constructor(dimensions: number, metric: Metric, scale = 1) {
    this.scale = scale;
    this.#dimensions = dimensions;
    this.#metric = metric;
    this.#index = new Index({
      dimensions,
      metric: KINDS[metric],
      multi: false,
      quantization: VALUE_BYTES[metric] === 1 ? ScalarKind.I8 : ScalarKind.F16,
      connectivity: CONNECTIVITY,
      expansion_add: WIDTH_ADD,
      expansion_search: WIDTH_SEARCH,
    });
  }

  /** Number of keys, deleted ones included. */
  get size(): number {
    return Number(this.#index.size());
  }

  /** Approximate bytes of memory. */
  get bytes(): number {
    // Links have 4 bytes each. A node has 2 * CONNECTIVITY in the lowest layer of HNSW. A third CONNECTIVITY allows for
    // higher layers.
    const links = 4 * (2 * CONNECTIVITY + CONNECTIVITY);
    return Number(this.#index.capacity()) * (VALUE_BYTES[this.#metric] * this.#dimensions + links);
  }

  /** True when 16 bits can hold the vector's values. */
  fits(vector: Float32Array): boolean {
    return this.#metric === 'cosine' || vector.every((value) => Math.abs(value * this.scale) <= MAX_VALUE);
  }

  add(key: number, vector: Float32Array): void {
    this.#index.add(BigUint64Array.of(BigInt(key)), this.#scaled(vector), 1);
  }

  /** Up to `count` keys near the vector. */
  near(vector: Float32Array, count: number): number[] {
    if (this.size === 0) return [];
    // 16 bits must hold the query's values. Scaling the query by its own length changes no order of dot products.
    const query = this.#metric === 'dot-product' ? times(vector, scaleFor(norm(vector))) : this.#scaled(vector);
    return Array.from(this.#index.search(query, Math.min(count, this.size), 1).keys, Number);
  }

  /** The vector as the graph has it. For `cosine`, that is its direction, whose values are small whatever the vector's length. */
  #scaled(vector: Float32Array): Float32Array {
    if (this.#metric !== 'cosine') return times(vector, this.scale);
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

/** The vector times `scale`, with values limited to those that 16 bits can hold: a query may be far longer than all vectors. */
const times = (vector: Float32Array, scale: number): Float32Array =>
  vector.map((value) => Math.max(-MAX_VALUE, Math.min(MAX_VALUE, value * scale)));

/** Length of the longest vector. */
export function* longestOf(records: Pick<Records, 'after'>): Pieces<number> {
  let longest = 0;
  let lastKey = 0;
  for (;;) {
    const rows = records.after(lastKey, ROWS_AT_ONCE);
    for (const { key, vector } of rows) {
      longest = Math.max(longest, norm(vector));
      lastKey = key;
    }
    if (rows.length < ROWS_AT_ONCE) return longest;
    yield;
  }
}

const PREFIX = 'graph-';

/** Name of the file of a graph that has every entry up to a key. */
export const graphFile = (key: number): string => `${PREFIX}${key}.usearch`;

/** Writes `<file>.new` through to the disk, and gives it the name `file`. */
export async function publishGraph(file: string): Promise<void> {
  const handle = await open(`${file}.new`, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(`${file}.new`, file);
}

/** Deletes the files of an index's graphs, also incomplete ones, except the one up to the key `keptKey`. */
export async function removeGraphs(directory: string, keptKey?: number): Promise<void> {
  const files = await readdir(directory).catch(() => []);
  await Promise.all(otherGraphFiles(files, keptKey).map((file) => rm(path.join(directory, file), { force: true })));
}

/** Like {@link removeGraphs}, for an index that opens. */
export function removeGraphsSync(directory: string, keptKey?: number): void {
  for (const file of otherGraphFiles(readdirSync(directory), keptKey))
    rmSync(path.join(directory, file), { force: true });
}

const otherGraphFiles = (files: readonly string[], keptKey: number | undefined): string[] =>
  files.filter((file) => file.startsWith(PREFIX) && (keptKey === undefined || file !== graphFile(keptKey)));
