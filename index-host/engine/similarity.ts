import type { Metric } from '../protocol/types.ts';

/** Similarity of two vectors; larger is nearer. `cosine` gives 0 for a vector of zeros, `euclidean` the negative squared distance. */
export function similarity(metric: Metric, one: Float32Array, other: Float32Array): number {
  // `0 - x` instead of `-x`: equal vectors get 0 and not -0.
  if (metric === 'euclidean') return 0 - squaredDistance(one, other, 0);
  const product = dot(one, other, 0);
  return metric === 'dot-product' ? product : product / (norm(one) * norm(other) || 1);
}

export const norm = (vector: Float32Array): number => Math.sqrt(dot(vector, vector, 0));

/** Dot product of a vector with the part of `matrix` that begins at `at`. Four sums let the processor overlap the additions. */
export function dot(vector: Float32Array, matrix: Float32Array, at: number): number {
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let i = 0;
  const unrolledLength = vector.length & ~3;
  for (; i < unrolledLength; i += 4) {
    a += (vector[i] as number) * (matrix[at + i] as number);
    b += (vector[i + 1] as number) * (matrix[at + i + 1] as number);
    c += (vector[i + 2] as number) * (matrix[at + i + 2] as number);
    d += (vector[i + 3] as number) * (matrix[at + i + 3] as number);
  }
  for (; i < vector.length; i++) a += (vector[i] as number) * (matrix[at + i] as number);
  return a + b + c + d;
}

/**
 * Squared distance of a vector and the part of `matrix` that begins at `at`. The function sums the squares of differences. The formula
 * |a|² + |b|² − 2ab would lose almost all digits for two vectors that are near each other and far from zero.
 */
export function squaredDistance(vector: Float32Array, matrix: Float32Array, at: number): number {
  let a = 0;
  let b = 0;
  let i = 0;
  const unrolledLength = vector.length & ~1;
  for (; i < unrolledLength; i += 2) {
    const one = (vector[i] as number) - (matrix[at + i] as number);
    const other = (vector[i + 1] as number) - (matrix[at + i + 1] as number);
    a += one * one;
    b += other * other;
  }
  const last = i < vector.length ? (vector[i] as number) - (matrix[at + i] as number) : 0;
  return a + b + last * last;
}

/** An entry by its key, with the score that ranked it. */
export interface Ranked {
  readonly key: number;
  readonly score: number;
}

/** Added to each rank. Without it, the first places of a single list would decide alone. */
const DAMPING = 60;

/** Order of a ranking: the best entry first, and of entries with equal scores the older one first. */
export const byScore = (one: Ranked, other: Ranked): number => other.score - one.score || one.key - other.key;

/**
 * Joins rankings into one: an entry's score is the sum of `1 / (DAMPING + rank)` over the lists that have it (reciprocal rank fusion: Cormack,
 * Clarke and Büttcher, SIGIR 2009).
 */
export function fuse(lists: readonly (readonly Ranked[])[]): Ranked[] {
  const scores = new Map<number, number>();
  for (const list of lists) {
    for (const [i, { key }] of list.entries()) scores.set(key, (scores.get(key) ?? 0) + 1 / (DAMPING + i + 1));
  }
  return [...scores].map(([key, score]) => ({ key, score })).sort(byScore);
}
