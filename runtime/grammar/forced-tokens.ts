import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Forced } from './messages.ts';

/** A model's tokenizer, with the way to run it on texts of guests. */
export interface Spelling {
  readonly tokenizer: Pick<Tokenizer, 'tokenBytes' | 'decoding'>;
  /** Token ids of a text in which special tokens are ordinary text. */
  encode(text: string): Outcome<Uint32Array> | Promise<Outcome<Uint32Array>>;
}

const NO_TOKENS: readonly number[] = [];

/**
 * The tokens of a forced text that stay the same, whatever text of the grammar follows (jump-forward decoding: Zheng et al., "SGLang", 2024,
 * with the tokens that may still grow held back instead of tokenized again).
 *
 * Tokenizing the text and its continuation as a whole leaves two cases. A token ends with the forced text: the text's tokens are then those
 * of the text by itself, since no merge crossed its end. Or a token reaches past the end, from one of `reaching`: the text before this offset
 * then has the tokens that it has by itself. The common beginning of all these is therefore certain.
 *
 * @returns an empty list when the tokenizer does not spell the text exactly, and the tokenizer's errors
 */
export async function forcedTokens(forced: Forced, spelling: Spelling): Promise<Outcome<Uint32Array>> {
  const { bytes, reaching } = forced;
  let certain = bytes.length > 0 ? await spell(bytes, spelling) : ok(NO_TOKENS);
  for (const offset of reaching) {
    if (certain.tag === 'err') return certain;
    if (certain.val.length === 0) break;
    const whole = wholeCharacters(bytes, offset);
    const before = whole > 0 ? await spell(bytes.subarray(0, whole), spelling) : ok(NO_TOKENS);
    if (before.tag === 'err') return before;
    const { val: tokens } = before;
    // A token that begins within a character leaves a part of the character to the token before, which is then another one.
    const known = whole < offset ? tokens.slice(0, -1) : tokens;
    const { val: all } = certain;
    const differs = all.findIndex((token, i) => token !== known[i]);
    if (differs >= 0) certain = ok(all.slice(0, differs));
  }
  return certain.tag === 'ok' ? ok(Uint32Array.from(certain.val)) : certain;
}

/** The tokens of a text that continues another one, or none when their bytes are not the text's. */
async function spell(bytes: Uint8Array, { tokenizer, encode }: Spelling): Promise<Outcome<readonly number[]>> {
  const { stripsLeadingSpace } = tokenizer.decoding;
  // SentencePiece tokenizers put a space before every text. A line break in front keeps it away from the text.
  const encoded = await encode(`${stripsLeadingSpace ? '\n' : ''}${Buffer.from(bytes).toString()}`);
  if (encoded.tag === 'err') return encoded;
  const tokens = encoded.val;
  let first = tokens.length;
  let left = bytes.length;
  while (left > 0 && first > 0) {
    first -= 1;
    const token = tokenizer.tokenBytes(tokens[first] as number);
    left -= token.length;
    if (left < 0 || Buffer.compare(token, bytes.subarray(left, left + token.length)) !== 0) return ok(NO_TOKENS);
  }
  return ok(left === 0 ? [...tokens.subarray(first)] : NO_TOKENS);
}

/** The offset of the character that `offset` lies within. */
function wholeCharacters(bytes: Uint8Array, offset: number): number {
  let whole = offset;
  while (whole > 0 && ((bytes[whole] as number) & 0xc0) === 0x80) whole -= 1;
  return whole;
}
