/** Finds the passages whose vectors are nearest to a query's vector: by a {@link scan}, or by an index. */
export type Search = (query: Float32Array, count: number) => readonly string[];

/** A search that compares the query with every vector; fast enough for some thousand passages. */
export const scan =
  (passages: readonly string[], vectors: readonly Float32Array[]): Search =>
  (query, count) =>
    passages
      .map((passage, i) => ({ passage, score: dot(query, vectors[i] ?? new Float32Array()) }))
      .sort((a, b) => b.score - a.score)
      .slice(0, count)
      .map(({ passage }) => passage);

/** The passages with the largest scores, each once, the best first. */
export function best(passages: readonly string[], scores: readonly number[], count: number): string[] {
  const scored = passages.map((passage, i) => ({ passage, score: scores[i] ?? 0 }));
  const sorted = scored.sort((a, b) => b.score - a.score).map(({ passage }) => passage);
  return [...new Set(sorted)].slice(0, count);
}

function dot(one: Float32Array, other: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += (one[i] as number) * (other[i] ?? 0);
  return sum;
}
