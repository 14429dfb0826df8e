/** A suite that a run begins, and the seconds that it took before; undefined when that is unknown. */
export interface Expected {
  readonly name: string;
  readonly seconds?: number | undefined;
}

/** A suite that has run. */
export interface Took {
  readonly expected: number | undefined;
  readonly seconds: number;
}

/**
 * Seconds that the other suites will take: those expected of them, as much faster or slower as the suites before were. Undefined when too
 * little is known.
 */
export function secondsLeft(done: readonly Took[], rest: readonly Expected[]): number | undefined {
  let left = 0;
  for (const { seconds } of rest) {
    if (seconds === undefined) return undefined;
    left += seconds;
  }
  let [expected, took] = [0, 0];
  for (const one of done) {
    if (one.expected === undefined) continue;
    expected += one.expected;
    took += one.seconds;
  }
  return expected === 0 ? left : (left * took) / expected;
}
