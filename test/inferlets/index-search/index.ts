/** Measures how long queries for the given vectors take, one after another. */
import { defineInferlet, VectorIndex } from '@pie/inferlet';

/** Queries of one measurement, which is their mean: the clock counts whole milliseconds, and one query is too short for it. */
const GROUP = 20;

export const run = defineInferlet(
  async ({ name, vectors, limit }: { name: string; vectors: readonly (readonly number[])[]; limit: number }) => {
    const index = new VectorIndex(name);
    const queries = vectors.map((values) => Float32Array.from(values));
    const times: number[] = [];
    for (let at = 0; at + GROUP <= queries.length; at += GROUP) {
      const from = performance.now();
      for (const vector of queries.slice(at, at + GROUP)) await index.query({ vector, limit });
      times.push((performance.now() - from) / GROUP);
    }
    return { times };
  },
);
