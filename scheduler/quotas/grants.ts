/**
 * Tokens that an attempt asks for with a report of its usage. All three are ceilings: tokens of the attempt that a quota counts, from the attempt's
 * beginning on. `keep` ≤ `need` ≤ `want`.
 */
export interface TokenAsk {
  /** The ceiling that the attempt keeps in any case: its calls may have used it. It returns what it has above. */
  readonly keep: number;
  /** The least ceiling with which the attempt can go on. */
  readonly need: number;
  /** The ceiling that spares the attempt further asks for a while. */
  readonly want: number;
}

/** Tokens above its needs that an attempt asks for, so that it need not ask for each call. `limits.lua` begins attempts with at most as many. */
export const SPARE_TOKENS = 4096;

/** An ask as the scripts take it; '' for none. */
export function askText(ask: TokenAsk | null): string {
  return ask === null ? '' : `${ask.keep} ${ask.need} ${ask.want}`;
}
