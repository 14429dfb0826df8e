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

/** All strings of one to three of the characters. */
export function shortTexts(characters: string): string[] {
  const single = [...characters];
  const pairs = single.flatMap((first) => single.map((second) => first + second));
  return [...single, ...pairs, ...pairs.flatMap((pair) => single.map((third) => pair + third))];
}

/**
 * A byte-pair vocabulary in which cuts of texts into words show in the tokens. Merges join each whole text to one token: first those of the short
 * texts, in order of length, so that every cut of a short text gives other tokens. Texts that are longer are joined in a random order.
 */
export function trainedVocabulary(short: readonly string[], long: readonly string[]): TokenizerJson {
  const vocab: Record<string, number> = {};
  for (const letter of BYTE_LETTERS) vocab[letter] = Object.keys(vocab).length;
  const merges: [string, string][] = [];
  let state = 1;
  const train = (texts: readonly string[]) => {
    let words = texts.map((text) => [...Buffer.from(text)].map((byte) => BYTE_LETTERS[byte]!));
    for (const merge of merges) words = words.map((word) => joined(word, merge));
    for (;;) {
      words = words.filter((word) => word.length > 1);
      if (words.length === 0) return;
      const pairs = words.flatMap((word) => word.slice(1).map((right, i) => [word[i]!, right] as const));
      state = (state * 48271) % 0x7fffffff;
      const [left, right] = pairs[state % pairs.length]!;
      merges.push([left, right]);
      vocab[left + right] ??= Object.keys(vocab).length;
      words = words.map((word) => joined(word, [left, right]));
    }
  };
  for (const length of [1, 2, 3]) train(short.filter((text) => [...text].length === length));
  train(long);
  return { added_tokens: [], model: { vocab, merges } };
}

function joined(word: readonly string[], [left, right]: readonly [string, string]): string[] {
  const result: string[] = [];
  for (const letter of word) {
    if (result.at(-1) === left && letter === right) result[result.length - 1] = left + right;
    else result.push(letter);
  }
  return result;
}

/** GPT-2's letters for the bytes 0 to 255: printable characters stand for themselves, other bytes for letters from U+0100 on. */
const BYTE_LETTERS: readonly string[] = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const isPrintable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    return String.fromCodePoint(isPrintable ? byte : next++);
  });
})();
