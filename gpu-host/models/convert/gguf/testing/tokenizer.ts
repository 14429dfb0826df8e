import { type Entry, TOKEN } from './write.ts';

/** The parts of a tokenizer.json that a GGUF file keeps. */
export interface TokenizerJson {
  readonly added_tokens: readonly { readonly id: number; readonly content: string; readonly special: boolean }[];
  readonly model: {
    readonly vocab: Readonly<Record<string, number>>;
    readonly merges: readonly (string | readonly string[])[];
  };
}

/** The metadata entries that llama.cpp's converter writes for a byte-level tokenizer.json (`get_vocab_base`, `SpecialVocab`). */
export function byteLevelEntries({ added_tokens: added, model }: TokenizerJson, pre: string): Entry[] {
  const ids = [...Object.values(model.vocab), ...added.map(({ id }) => id)];
  const size = ids.reduce((a, b) => Math.max(a, b)) + 1;
  const tokens = Array.from({ length: size }, (_, id) => `[PAD${id}]`);
  const types: number[] = Array.from({ length: size }, () => TOKEN.unused);
  for (const [text, id] of Object.entries(model.vocab)) [tokens[id], types[id]] = [text, TOKEN.normal];
  for (const { id, content, special } of added)
    [tokens[id], types[id]] = [content, special ? TOKEN.control : TOKEN.added];
  return [
    ['tokenizer.ggml.model', 'text', 'gpt2'],
    ['tokenizer.ggml.pre', 'text', pre],
    ['tokenizer.ggml.tokens', 'text', tokens],
    ['tokenizer.ggml.token_type', 'i32', types],
    [
      'tokenizer.ggml.merges',
      'text',
      model.merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' '))),
    ],
  ];
}
