import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';

/** Token counts of texts as the guest library encodes them. */
export interface TokenCounter {
  /** Tokens of a text at the beginning of a context, the begin-of-text token included. */
  begin(text: string): number;
  /** Tokens of texts that continue a context. The guest encodes each text separately. */
  continuing(...texts: readonly string[]): number;
}

/** Counts tokens independently of the platform, so that a test knows how many tokens the platform had to compute. */
export async function tokenCounter(model: string): Promise<TokenCounter> {
  const { encode, special } = await loadTokenizer((await pullModel(model)).directory);
  // A line break in front keeps a tokenizer from putting a space before the text.
  const line = encode('\n').length;
  return {
    begin: (text) => encode(text).length + (special.bos === null ? 0 : 1),
    continuing: (...texts) => texts.reduce((sum, text) => sum + encode(`\n${text}`).length - line, 0),
  };
}
