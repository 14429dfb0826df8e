import { batchesOf } from './batches.ts';

/** Most texts, and most characters of them, in one call of the platform. */
const CALL_TEXTS = 256;
const CALL_CHARACTERS = 262_144;

/** Texts of one call, and the number of those that were cut to fit. */
export interface TextPart {
  readonly texts: string[];
  readonly cut: number;
}

/** Parts that fit one call each, with `more` characters for each text. A text that fills a call loses its end: no model reads that far. */
export function partsOf(all: readonly string[], more: number): TextPart[] {
  const most = Math.max(0, CALL_CHARACTERS - more);
  const batches = batchesOf(all, ({ length }) => Math.min(length, most) + more, CALL_TEXTS, CALL_CHARACTERS);
  // A call without texts checks the name of the model.
  return (batches.length === 0 ? [[]] : batches).map((batch) => ({
    texts: batch.map((text) => text.slice(0, most)),
    cut: batch.filter(({ length }) => length > most).length,
  }));
}
