/** A run whose next token is being computed. */
export interface RunUnderWay {
  readonly maxTokens: number;
  /** Number of tokens produced before that one, and the number of these that the inferlet has taken. */
  readonly produced: number;
  readonly taken: number;
  /** True when the run was asked to end. */
  readonly stopped: boolean;
}

/** A row of a step: a run's, an ended call's, or any other call's. */
export type RowUnderWay = RunUnderWay | 'ended' | 'other';

/**
 * The rows of a step under way whose runs continue whatever tokens come. These can be handed to the device now, to be computed right after
 * the step. A run that meets a stop token has then been computed once in vain.
 *
 * None when fewer than half of the rows continue: the other rows' inferlets may be back with their next calls when the step ends, and would
 * wait for another step. For the same reason none when a call other than a run took part.
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
