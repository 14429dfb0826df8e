import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, type HandlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { GrammarAccount } from './account.ts';
import type { Forced } from './messages.ts';

/** A model's tokenizer, with the way to run it on texts of guests. */
export interface Spelling {
  readonly tokenizer: Pick<Tokenizer, 'tokenBytes' | 'decoding'>;
  /** Token ids of a text in which special tokens are ordinary text. */
  encode(text: string): Outcome<Uint32Array> | Promise<Outcome<Uint32Array>>;
}

/** The user who is charged for the tokenization of texts. */
export interface Payer {
  readonly account: Pick<GrammarAccount, 'turn' | 'runCharged'>;
  /** Returns an error when the tokens are not wanted any more, or when the user's time is used up; else null. */
  refuse(): HandlerError | null;
}

const NO_TOKENS: readonly number[] = [];

/**
 * The tokens of a forced text that stay the same, whatever text of the grammar follows (jump-forward decoding: Zheng et al., "SGLang", 2024).
 * SGLang tokenizes again when the text goes on. This function instead leaves out the last tokens, which a continuation may change.
 *
 * A tokenization of the forced text with a continuation is one of two cases. If a token ends where the forced text ends, no merge crosses this end,
 * so the forced text has the same tokens as without the continuation. Otherwise a token begins at one of the offsets `reaching` and crosses the end,
 * so the text before this offset has the same tokens as without the rest. The common prefix of all these tokenizations is therefore certain.
 *
 * Each tokenization waits for its own turn of the event loop, and the payer is charged for it.
 *
 * @returns an empty list when the tokenizer does not spell the text exactly; errors of the tokenizer and of `payer.refuse`
 */
export async function forcedTokens(forced: Forced, spelling: Spelling, payer: Payer): Promise<Outcome<Uint32Array>> {
  const { bytes, reaching } = forced;
  let certain = bytes.length > 0 ? await spell(bytes, spelling, payer) : ok(NO_TOKENS);
  for (const offset of reaching) {
    if (certain.tag === 'err') return certain;
    if (certain.val.length === 0) break;
    const prefixLength = characterStartAt(bytes, offset);
    const prefixTokens =
      prefixLength > 0 ? await spell(bytes.subarray(0, prefixLength), spelling, payer) : ok(NO_TOKENS);
    if (prefixTokens.tag === 'err') return prefixTokens;
    const { val: tokens } = prefixTokens;
    // If the offset lies within a character, the token before the offset ends with the first bytes of this character. The prefix has no such token,
    // so its last token is not certain.
    const knownTokens = prefixLength < offset ? tokens.slice(0, -1) : tokens;
    const { val: all } = certain;
    const differs = all.findIndex((token, i) => token !== knownTokens[i]);
    if (differs >= 0) certain = ok(all.slice(0, differs));
  }
  return certain.tag === 'ok' ? ok(Uint32Array.from(certain.val)) : certain;
}

/** Tokenizes `bytes` as the continuation of a text. Returns no tokens when the tokens do not spell exactly these bytes. */
async function spell(
  bytes: Uint8Array,
  { tokenizer, encode }: Spelling,
  { account, refuse }: Payer,
): Promise<Outcome<readonly number[]>> {
  await account.turn();
  const refused = refuse();
  if (refused) return err(refused);
  // SentencePiece tokenizers put a space before every text. A line break in front separates the space from the text.
  const front = tokenizer.decoding.stripsLeadingSpace ? '\n' : '';
  const encoded = await account.runCharged(() => encode(`${front}${Buffer.from(bytes).toString()}`));
  return encoded.tag === 'ok' ? ok(account.runCharged(() => tail(bytes, encoded.val, tokenizer))) : encoded;
}

/** The tokens at the end of `tokens` that spell `bytes`; none when there are no such tokens. */
function tail(bytes: Uint8Array, tokens: Uint32Array, tokenizer: Spelling['tokenizer']): readonly number[] {
  let first = tokens.length;
  let remainingBytes = bytes.length;
  while (remainingBytes > 0 && first > 0) {
    first -= 1;
    const token = tokenizer.tokenBytes(tokens[first] as number);
    remainingBytes -= token.length;
    if (
      remainingBytes < 0 ||
      Buffer.compare(token, bytes.subarray(remainingBytes, remainingBytes + token.length)) !== 0
    )
      return NO_TOKENS;
  }
  return remainingBytes === 0 ? [...tokens.subarray(first)] : NO_TOKENS;
}

/** The offset at which the character around `offset` begins. */
function characterStartAt(bytes: Uint8Array, offset: number): number {
  let characterStart = offset;
  while (characterStart > 0 && ((bytes[characterStart] as number) & 0xc0) === 0x80) characterStart -= 1;
  return characterStart;
}
