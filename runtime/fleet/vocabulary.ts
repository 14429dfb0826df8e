import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { SentVocabulary } from './messages.ts';

/** Maximum bytes of a token, whose length must fit into two bytes. Longer tokens are cut. */
const MAX_TOKEN_BYTES = 0xffff;

/** Packed tables, kept while the tokenizer lives, because every sandbox gets them. */
const packed = new WeakMap<Tokenizer, { readonly table: Omit<SentVocabulary, 'model'>; readonly body: Uint8Array }>();

/** Packs a tokenizer's tables for sandboxes: the length of each token in two bytes (little-endian), then the bytes of all tokens. */
export function packVocabulary(tokenizer: Tokenizer): { table: Omit<SentVocabulary, 'model'>; body: Uint8Array } {
  const known = packed.get(tokenizer);
  if (known) return known;
  const { vocabularySize: size, special, decoding } = tokenizer;
  const tokens = Array.from({ length: size }, (_, id) => tokenizer.tokenBytes(id).subarray(0, MAX_TOKEN_BYTES));
  const body = new Uint8Array(size * 2 + tokens.reduce((sum, { length }) => sum + length, 0));
  const lengths = new DataView(body.buffer);
  let at = size * 2;
  tokens.forEach((bytes, id) => {
    lengths.setUint16(id * 2, bytes.length, true);
    body.set(bytes, at);
    at += bytes.length;
  });
  const { stripsLeadingSpace } = decoding;
  const made = { table: { size, special, specialIds: [...decoding.specialIds], stripsLeadingSpace }, body };
  packed.set(tokenizer, made);
  return made;
}
