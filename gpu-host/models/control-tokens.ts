import type { AddedToken } from './tokenizer-file.ts';

/** Names of tokens that end a turn even if a model's files state other end tokens; llama.cpp uses these names, too. */
export const END_NAMES = ['<|eot_id|>', '<|eom_id|>', '<|im_end|>', '<|end|>', '<|endoftext|>', '<|end_of_text|>'];
/** Names of other tokens that mark turns, of the formats ChatML, Llama 3, Gemma and Zephyr. */
export const TURN_NAMES = [
  '<|im_start|>',
  '<|start_header_id|>',
  '<|end_header_id|>',
  '<start_of_turn>',
  '<end_of_turn>',
  '<|system|>',
  '<|user|>',
  '<|assistant|>',
];

/**
 * Added tokens of a tokenizer.json; marks the control tokens among them as special. Some fine-tunes add `<|im_start|>` and `<|im_end|>` as
 * ordinary tokens, with which a user's text could begin and end turns.
 *
 * @param control ids and names of the tokens with a role in the model's other files; tokens in END_NAMES and TURN_NAMES are control tokens, too
 */
export function withControlTokens<T extends AddedToken>(
  added: readonly T[],
  control: ReadonlySet<number | string | null | undefined>,
): T[] {
  const names: ReadonlySet<string> = new Set([...END_NAMES, ...TURN_NAMES]);
  return added.map((token) => {
    const { id, content, special } = token;
    return { ...token, special: special || control.has(id) || control.has(content) || names.has(content) };
  });
}
