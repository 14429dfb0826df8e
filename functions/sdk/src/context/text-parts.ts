import { batchesOf } from './batches.ts';

/** Most texts in one call of the platform. */
const CALL_TEXTS = 256;
/** Most characters of all texts in one call together. */
const CALL_CHARACTERS = 262_144;

/** Texts of one call, and the number of those that were cut to fit. */
export interface TextPart {
  readonly texts: string[];
  readonly cut: number;
}

/**
 * Divides texts into parts that each fit in one call. Each text takes `extra` more characters of its call. A text that is too long for a call is
 * cut, since no model reads that far.
 */
export function partsOf(all: readonly string[], extra: number): TextPart[] {
  const maxLength = Math.max(0, CALL_CHARACTERS - extra);
  const batches = batchesOf(all, ({ length }) => Math.min(length, maxLength) + extra, CALL_TEXTS, CALL_CHARACTERS);
  // Without texts, one empty part remains: its call checks the name of the model.
  return (batches.length === 0 ? [[]] : batches).map((batch) => ({
    texts: batch.map((text) => text.slice(0, maxLength)),
    cut: batch.filter(({ length }) => length > maxLength).length,
  }));
}
