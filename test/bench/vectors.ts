import { randomFrom, randomVector } from '../harness/random.ts';

/**
 * Makes vectors of length 1 like those of an encoder: `topics` clusters in a space of `rank` dimensions, with noise in all dimensions. The rank is
 * low, as embeddings of texts have a low intrinsic dimension. A `rank` of null makes all values independent, the hardest case for approximate search.
 */
export function vectorSource(
  dimensions: number,
  { rank, topics = 500, seed = 1 }: { rank: number | null; topics?: number; seed?: number },
): () => Float32Array {
  const random = randomFrom(seed);
  const normals = (count: number) => randomVector(count, random);
  if (rank === null) return () => unit(normals(dimensions));
  const basis = Array.from({ length: rank }, () => normals(dimensions));
  const centres = Array.from({ length: topics }, () => normals(rank));
  return () => {
    const centre = centres[Math.floor(random() * topics)] as Float32Array;
    const vector = normals(dimensions).map((value) => value * NOISE * Math.sqrt(rank));
    const offset = normals(rank);
    for (const [i, direction] of basis.entries()) {
      const weight = (centre[i] as number) + (offset[i] as number);
      for (let k = 0; k < dimensions; k++) (vector[k] as number) += weight * (direction[k] as number);
    }
    return unit(vector);
  };
}

/** Standard deviation of each value's noise, relative to that of the cluster's centre. */
const NOISE = 0.1;

function unit(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
}

/** Compares a vector of length 1 with each row of a matrix. Returns the numbers of the `count` nearest rows. */
export function nearest(matrix: Float32Array, vector: Float32Array, count: number): number[] {
  const best: { row: number; score: number }[] = [];
  const dimensions = vector.length;
  for (let row = 0; row < matrix.length / dimensions; row++) {
    const rowStart = row * dimensions;
    let score = 0;
    for (let k = 0; k < dimensions; k++) score += (vector[k] as number) * (matrix[rowStart + k] as number);
    if (best.length === count && score <= (best.at(-1)?.score ?? 0)) continue;
    const insertAt = best.findIndex((other) => other.score < score);
    best.splice(insertAt < 0 ? best.length : insertAt, 0, { row, score });
    if (best.length > count) best.pop();
  }
  return best.map(({ row }) => row);
}
