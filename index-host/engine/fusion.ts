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
