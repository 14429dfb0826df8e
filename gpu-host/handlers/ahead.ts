/** A run whose next token is being computed. */
export interface RunUnderWay {
  readonly maxTokens: number;
  /** Tokens before that one, and those of them that its inferlet has taken. */
  readonly produced: number;
  readonly taken: number;
  /** It was asked to end. */
  readonly stopped: boolean;
}

/** Whose row of a step it is: a run's, or one that is not wanted any more, or anything else. */
export type RowUnderWay = RunUnderWay | 'ended' | 'other';

/**
 * The rows of a step under way whose runs go on, whatever tokens come: these can be handed to the device now, to be computed right after it.
 * One that meets a stop token has then been computed once in vain.
 *
 * None when fewer than half of the rows go on: who has shared the step may be back with its next call by its end, and would wait for another.
 * For the same reason none when somebody else than runs had a part in it.
 *
 * @param windowTokens how far a run may be ahead of its consumer
 */
export function rowsAhead(rows: readonly RowUnderWay[], windowTokens: number): readonly number[] {
  const going: number[] = [];
  for (const [row, run] of rows.entries()) {
    if (run === 'other') return [];
    if (run !== 'ended' && goesOn(run, windowTokens)) going.push(row);
  }
  return going.length * 2 >= rows.length ? going : [];
}

function goesOn({ stopped, produced, taken, maxTokens }: RunUnderWay, windowTokens: number): boolean {
  return !stopped && produced + 1 < maxTokens && produced + 1 - taken < windowTokens;
}
