import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, test } from 'node:test';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';

const SEED = 20_251_120;

const CORPUS = [
  'Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine.',
  '  two spaces before, tabs\tinside,\n\nblank lines\r\nand a trailing space ',
  'function f(x) {\n  return x < 3 ? `x` : [1, 2, 3].map((y) => y ** x); // комментарий\n}',
  'def f(x):\n\treturn {"a": x, \'b\': 0x1F, "c": 1e-9}\n',
  '中国的首都是北京。今天天气很好，我们去公园散步吧！「你好」……',
  '日本語とかな、カタカナ、한국어, עברית, العربية, ไทย',
  '🙂🙃 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 ❤️ e\u0301 ﬁ ½ ① Ⅷ \u200b zero-width',
  '{"json": [true, false, null, -12.5e+3], "nested": {"quote": "\\"", "slash": "\\\\"}}',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  '<s>not special</s> <|im_start|>user',
  '\u0000\u0001\u007f\u0085\ufeff',
  '',
];

for (const name of ['stories15m', 'minimind2-small']) {
  describe(`${name} against @huggingface/tokenizers`, async () => {
    const { directory } = await pullModel(name);
    const json = async (file: string) => JSON.parse(await readFile(path.join(directory, file), 'utf8')) as object;
    const library = new LibraryTokenizer(await json('tokenizer.json'), await json('tokenizer_config.json'));
    const ours = await loadTokenizer(directory);

    const expected = (text: string) => [...library.encode(text, { add_special_tokens: false }).ids];

    test('encodes a corpus of prose, code, scripts and emoji equally', () => {
      for (const text of CORPUS) assert.deepEqual([...ours.encode(text, { special: true })], expected(text), text);
    });

    test('encodes random text equally', () => {
      const words = fc.constantFrom(...CORPUS.flatMap((text) => text.split(/(?<= )/)));
      const texts = fc.oneof(
        fc.string({ unit: 'grapheme', maxLength: 40 }),
        fc.array(words).map((all) => all.join('')),
      );
      fc.assert(
        fc.property(texts, (text) => assert.deepEqual([...ours.encode(text, { special: true })], expected(text))),
        { seed: SEED, numRuns: 500 },
      );
    });

    test('decodes its tokens at once and as a stream of any pieces', () => {
      fc.assert(
        fc.property(
          fc.constantFrom(...CORPUS.filter(Boolean)),
          fc.array(fc.integer({ min: 1, max: 5 })),
          (text, sizes) => {
            const tokens = ours.encode(text);
            assert.equal(ours.decode(tokens), library.decode([...tokens], { skip_special_tokens: true }));
            assert.equal(streamed(tokens, sizes), ours.decode(tokens));
          },
        ),
        { seed: SEED, numRuns: 300 },
      );
    });

    test('streams tokens with invalid bytes to the same text as all bytes decoded at once', () => {
      const token = fc.integer({ min: 3, max: ours.vocabularySize - 1 });
      const piece = fc.oneof(token, fc.integer({ min: 3, max: 258 }));
      fc.assert(
        fc.property(fc.array(piece, { maxLength: 40 }), fc.array(fc.integer({ min: 1, max: 5 })), (tokens, sizes) => {
          const bytes = Buffer.concat(tokens.map((id) => ours.tokenBytes(id)));
          const whole = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
          const text = streamed(Uint32Array.from(tokens), sizes, true);
          assert.equal(text, whole);
          assert.equal(text.isWellFormed(), true);
        }),
        { seed: SEED, numRuns: 1000 },
      );
    });

    function streamed(tokens: Uint32Array, sizes: readonly number[], continuation = false): string {
      const stream = ours.stream({ continuation, special: continuation });
      let text = '';
      for (let at = 0, i = 0; at < tokens.length; i++) {
        const size = sizes[i % Math.max(1, sizes.length)] ?? 1;
        text += stream.push(tokens.subarray(at, at + size));
        at += size;
      }
      return text + stream.finish();
    }
  });
}
