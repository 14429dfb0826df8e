/** A run whose next token is being computed. */
export interface RunUnderWay {
  readonly maxTokens: number;
  /** Number of tokens produced before the one that is being computed. */
  readonly produced: number;
  /** Number of produced tokens that the inferlet has taken. */
  readonly taken: number;
  /** True when the run was asked to end. */
  readonly stopped: boolean;
}

/** A row of a step: a run's, an ended call's, or any other call's. */
export type RowUnderWay = RunUnderWay | 'ended' | 'other';

/**
 * Returns the rows of a step under way whose runs continue whatever token comes, unless it is a stop token. The next inputs of these runs can be
 * handed to the device now, to be computed right after the step. For a run that meets a stop token, that step is then computed in vain.
 *
 * Returns no rows when fewer than half of them continue: when the step ends, the inferlets of the other rows may make their next calls, which would
 * have to wait for the step ahead. For the same reason, returns no rows when a call other than a run takes part.
 *
 * @param windowTokens how far a run may be ahead of its consumer
 */
export function rowsAhead(rows: readonly RowUnderWay[], windowTokens: number): readonly number[] {
  const continuingRows: number[] = [];
  for (const [row, run] of rows.entries()) {
    if (run === 'other') return [];
    if (run !== 'ended' && goesOn(run, windowTokens)) continuingRows.push(row);
  }
  return continuingRows.length * 2 >= rows.length ? continuingRows : [];
}

function goesOn({ stopped, produced, taken, maxTokens }: RunUnderWay, windowTokens: number): boolean {
  return !stopped && produced + 1 < maxTokens && produced + 1 - taken < windowTokens;
}
