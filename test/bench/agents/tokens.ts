import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';

/** Turns texts into the same token ids as the guest library does, for clients that send ids. */
export interface TextTokens {
  /** A text at the beginning of a context. */
  begin(text: string): number[];
  /** A text that continues a context. */
  more(text: string): number[];
}

export async function textTokens(model: string): Promise<TextTokens> {
  const { encode, special } = await loadTokenizer((await pullModel(model)).directory);
  // A line break in front keeps a tokenizer from putting a space before the text.
  const lineBreakLength = encode('\n').length;
  const bosTokens = special.bos === null ? [] : [special.bos];
  return {
    begin: (text) => [...bosTokens, ...encode(text)],
    more: (text) => [...encode(`\n${text}`).slice(lineBreakLength)],
  };
}
