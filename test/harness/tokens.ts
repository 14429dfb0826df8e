import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';

/** How many tokens a text is to the guest library. */
export interface TokenCounter {
  /** At the beginning of a context, with the token that begins a text. */
  begin(text: string): number;
  /** Texts that are filled in, or forced, one after the other where a context goes on. */
  more(...texts: readonly string[]): number;
}

/** Counts tokens apart from the platform, so that a test knows how many had to be computed. */
export async function tokenCounter(model: string): Promise<TokenCounter> {
  const { encode, special } = await loadTokenizer((await pullModel(model)).directory);
  // A line break in front keeps a tokenizer from putting a space before the text.
  const line = encode('\n').length;
  return {
    begin: (text) => encode(text).length + (special.bos === null ? 0 : 1),
    more: (...texts) => texts.reduce((sum, text) => sum + encode(`\n${text}`).length - line, 0),
  };
}
