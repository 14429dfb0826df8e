import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Tokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { createLongWordMerger } from './tokenizer.ts';

/** A vocabulary of letters and every union that the merges make. */
function model(merges: readonly [string, string][]): object {
  const tokens = new Set(['a', 'b', 'c', ...merges.flatMap(([left, right]) => [left, right, left + right])]);
  return {
    type: 'BPE',
    unk_token: null,
    vocab: Object.fromEntries([...tokens].map((token, id) => [token, id])),
    merges,
  };
}

const part = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 3 });
/** `x` and `😀` are not in the vocabulary. */
const word = fc.string({ unit: fc.constantFrom('a', 'b', 'c', 'x', '😀'), minLength: 1, maxLength: 60, size: 'max' });

describe('createLongWordMerger', () => {
  it('merges as the library does, for any merges and words', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(part, part), { maxLength: 30, size: 'max', selector: (merge) => merge.join(' ') }),
        word,
        (merges, text) => {
          const json = model(merges);
          const rest = { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
          const library = new Tokenizer({ model: json, ...rest }, {});
          const { bpe } = library.model as unknown as { bpe(word: string): string[] };
          assert.deepEqual(createLongWordMerger(json)?.(text), bpe.call(library.model, text));
        },
      ),
      { seed: 7, numRuns: 1_000 },
    );
  });

  it('merges the leftmost of equal pairs first, and reads both forms of merges', () => {
    const json = { type: 'BPE', vocab: { a: 0, aa: 1, aaaa: 2 }, merges: ['a a', ['aa', 'aa']] };
    const merge = createLongWordMerger(json);
    assert.deepEqual(merge?.('aaaaaaa'), ['aaaa', 'aa', 'a']);
  });

  it('returns null for a model that it does not support', () => {
    assert.equal(createLongWordMerger({ type: 'Unigram', vocab: [] }), null);
    assert.equal(createLongWordMerger({ type: 'BPE', vocab: { a: 0 }, merges: ['a b'] }), null);
    assert.equal(createLongWordMerger({ type: 'BPE', vocab: { a: 0 }, merges: [], end_of_word_suffix: '</w>' }), null);
  });
});
