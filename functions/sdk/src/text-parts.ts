import { batchesOf } from './batches.ts';

/** Most texts, and most characters of them, in one call of the platform. */
const CALL_TEXTS = 256;
const CALL_CHARACTERS = 262_144;

/** Texts of one call, and the number of those that were cut to fit. */
export interface TextPart {
  readonly texts: string[];
  readonly cut: number;
}

/** Parts that fit one call each; `extra` characters go with each text. Cuts a text that is longer than a call: no model reads that far. */
export function partsOf(all: readonly string[], extra: number): TextPart[] {
  const maxLength = Math.max(0, CALL_CHARACTERS - extra);
  const batches = batchesOf(all, ({ length }) => Math.min(length, maxLength) + extra, CALL_TEXTS, CALL_CHARACTERS);
  // A call without texts checks the name of the model.
  return (batches.length === 0 ? [[]] : batches).map((batch) => ({
    texts: batch.map((text) => text.slice(0, maxLength)),
    cut: batch.filter(({ length }) => length > maxLength).length,
  }));
}
