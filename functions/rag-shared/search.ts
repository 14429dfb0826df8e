/** Finds the passages whose vectors are nearest to a query's; an index may take its place. */
export type Search = (query: Float32Array, count: number) => readonly string[];

/** A search that compares the query with every vector: for some thousand passages. */
export const scan =
  (passages: readonly string[], vectors: readonly Float32Array[]): Search =>
  (query, count) =>
    passages
      .map((passage, i) => ({ passage, score: dot(query, vectors[i] ?? new Float32Array()) }))
      .sort((a, b) => b.score - a.score)
      .slice(0, count)
      .map(({ passage }) => passage);

/** The passages found for several queries, each once, the first ones of each query first. */
export function merged(lists: readonly (readonly string[])[], count: number): string[] {
  const found = new Set<string>();
  for (let rank = 0; found.size < count && lists.some((list) => rank < list.length); rank++) {
    for (const list of lists) {
      const passage = list[rank];
      if (passage !== undefined && found.size < count) found.add(passage);
    }
  }
  return [...found];
}

/** The passages with the largest scores, the best first. */
export const best = (passages: readonly string[], scores: readonly number[], count: number): string[] =>
  passages
    .map((passage, i) => ({ passage, score: scores[i] ?? 0 }))
    .sort((a, b) => b.score - a.score)
    .slice(0, count)
    .map(({ passage }) => passage);

function dot(one: Float32Array, other: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += (one[i] as number) * (other[i] ?? 0);
  return sum;
}
