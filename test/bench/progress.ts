/** A suite that is to run. */
export interface ExpectedSuite {
  readonly name: string;
  /** Expected time of the suite; undefined when unknown. */
  readonly seconds?: number | undefined;
}

/** A suite that has run. */
export interface FinishedSuite {
  readonly expected: number | undefined;
  readonly seconds: number;
}

/**
 * Seconds that the remaining suites will take: their expected times, times the ratio of actual to expected time of the suites that have run.
 * Undefined when an expected time is unknown.
 */
export function secondsLeft(done: readonly FinishedSuite[], rest: readonly ExpectedSuite[]): number | undefined {
  let expectedRest = 0;
  for (const { seconds } of rest) {
    if (seconds === undefined) return undefined;
    expectedRest += seconds;
  }
  let [expectedDone, actualDone] = [0, 0];
  for (const suite of done) {
    if (suite.expected === undefined) continue;
    expectedDone += suite.expected;
    actualDone += suite.seconds;
  }
  return expectedDone === 0 ? expectedRest : (expectedRest * actualDone) / expectedDone;
}
