/** A suite that a run begins. */
export interface Expected {
  readonly name: string;
  /** Time of the suite's earlier run; undefined when that is unknown. */
  readonly seconds?: number | undefined;
}

/** A suite that has run. */
export interface Took {
  readonly expected: number | undefined;
  readonly seconds: number;
}

/**
 * Seconds that the other suites will take. Their expected times are corrected by how much faster or slower the ended suites were than expected.
 * Undefined when an expected time is unknown.
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
