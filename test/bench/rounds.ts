import { setTimeout as sleep } from 'node:timers/promises';

/** Pause before each side, in which the previous side's background work ends: writes to the log, refills of pools, garbage collections. */
const SETTLE_MS = 500;

/**
 * Runs the sides of one round one after another and returns their results in the order given. Round 0 begins with the first side, round 1
 * with the second, and so on, so that the sides go first equally often.
 */
export async function inTurn<T extends readonly unknown[]>(
  round: number,
  sides: { readonly [K in keyof T]: () => Promise<T[K]> },
  settleMs = SETTLE_MS,
): Promise<T> {
  const results: unknown[] = new Array(sides.length);
  for (const i of rotated(sides.length, round)) {
    await sleep(settleMs);
    results[i] = await sides[i]?.();
  }
  return results as unknown as T;
}

/** Warms up the sides: runs them as {@link inTurn} does, but without the pauses. */
export const warmUp = <T extends readonly unknown[]>(
  sides: { readonly [K in keyof T]: () => Promise<T[K]> },
  round = 0,
): Promise<T> => inTurn(round, sides, 0);

/**
 * Like {@link inTurn}, with the sides in the order given in even rounds and backwards in odd rounds. Over an even number of rounds, each side of
 * any pair runs before the other equally often.
 */
export async function backAndForth<T>(round: number, sides: readonly (() => Promise<T>)[]): Promise<T[]> {
  const isBackward = round % 2 === 1;
  const results = await inTurn<T[]>(0, isBackward ? sides.toReversed() : [...sides]);
  return isBackward ? results.reverse() : results;
}

/** The numbers from 0 to `count - 1`, beginning with `round` modulo `count`. */
export const rotated = (count: number, round: number): number[] =>
  Array.from({ length: count }, (_, i) => (i + round) % count);

/** Index of the first difference of two lists; -1 when they are equal. Where only one list has an element, they differ. */
export function firstDifference<T>(a: readonly T[], b: readonly T[]): number {
  for (let i = 0; i < Math.max(a.length, b.length); i++) if (a[i] !== b[i]) return i;
  return -1;
}
