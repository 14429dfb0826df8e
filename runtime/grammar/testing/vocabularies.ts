import type { Vocabulary } from '../vocabulary.ts';

/** These ids must differ from those that `vocabularyOf` gives, which count from 1. */
let lastId = 1_000_000;

/** A vocabulary of these tokens, in their order. */
export function vocabularyFrom(tokens: readonly Uint8Array[], eos: readonly number[]): Vocabulary {
  const offsets = new Uint32Array(new SharedArrayBuffer(4 * (tokens.length + 1)));
  tokens.forEach((token, id) => {
    offsets[id + 1] = (offsets[id] ?? 0) + token.length;
  });
  const bytes = new Uint8Array(new SharedArrayBuffer(offsets[tokens.length] ?? 0));
  tokens.forEach((token, id) => {
    bytes.set(token, offsets[id]);
  });
  lastId += 1;
  return { id: lastId, size: tokens.length, bytes, offsets, eos };
}
