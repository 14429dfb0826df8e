/** An entry by its key, with the score that ranked it. */
export interface Ranked {
  readonly key: number;
  readonly score: number;
}

/** Damps the first ranks, so that no single list decides alone. */
const DAMPING = 60;

/** The best first; of equal ones the older entry. */
export const byScore = (one: Ranked, other: Ranked): number => other.score - one.score || one.key - other.key;

/**
 * Joins rankings into one: an entry's score is the sum of `1 / (60 + rank)` over the lists that have it (reciprocal rank fusion: Cormack,
 * Clarke and Büttcher, SIGIR 2009).
 */
export function fuse(lists: readonly (readonly Ranked[])[]): Ranked[] {
  const scores = new Map<number, number>();
  for (const list of lists) {
    for (const [i, { key }] of list.entries()) scores.set(key, (scores.get(key) ?? 0) + 1 / (DAMPING + i + 1));
  }
  return [...scores].map(([key, score]) => ({ key, score })).sort(byScore);
}
