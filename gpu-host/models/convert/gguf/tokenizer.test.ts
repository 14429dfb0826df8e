import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { configToJson } from '../../config.ts';
import { pullModel } from '../../pull.ts';
import { publishedTokenizer } from '../../testing/published-tokenizer.ts';
import { tinyConfig } from '../../testing/random-model.ts';
import { loadTokenizer, type Tokenizer } from '../../tokenizer.ts';
import { type Piece, sentencePieceTokenizer } from '../sentencepiece.ts';
import type { MetadataValue } from './header.ts';
import { byteLevelEntries, type TokenizerJson } from './testing/tokenizer.ts';
import { TOKEN } from './testing/write.ts';
import { ggufTokenizer, specialIds } from './tokenizer.ts';

type Metadata = Record<string, MetadataValue>;

const TEXTS = [
  'Once upon a time,  there was\ta girl.\n\n\nShe\'ll say "Hi!" 12345 times…\r\n',
  'def f(x):\n    return {"a": x ** 2}  # комментарий, 中文, 한국어, café, naïve',
  '🙂👨‍👩‍👧 ﬁ ½ ① \u200b <|im_start|>user <s>[INST]',
  '  leading',
  'trailing   ',
  '',
  "IT'S we'RE 1,234.5678",
];
const anyText = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 30, size: 'max' }),
  fc.constantFrom(...TEXTS.flatMap((text) => text.split(/(?<= )/))).map(String),
);

const asMetadata = (json: TokenizerJson, pre: string): Metadata =>
  Object.fromEntries(byteLevelEntries(json, pre).map(([key, , value]) => [key, value as MetadataValue]));

describe('ggufTokenizer', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-gguf-tokenizer-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const load = async (metadata: Metadata): Promise<Tokenizer> => {
    const out = await mkdtemp(join(directory, 'out-'));
    const entries = new Map(Object.entries(metadata));
    const special = specialIds(entries);
    const vocabularySize = (metadata['tokenizer.ggml.tokens'] as string[]).length;
    const config = tinyConfig({ vocabularySize, bosTokenId: special.bos, eosTokenIds: special.eos });
    const { tokenizer, settings } = ggufTokenizer(entries, config);
    await writeFile(join(out, 'tokenizer.json'), JSON.stringify(tokenizer));
    await writeFile(join(out, 'tokenizer_config.json'), JSON.stringify(settings));
    await writeFile(join(out, 'config.json'), JSON.stringify(configToJson(config)));
    return loadTokenizer(out);
  };
  const assertSameTokens = (ours: Tokenizer, theirs: Tokenizer, runs: number) => {
    const check = (text: string) => {
      for (const special of [false, true]) {
        const tokens = theirs.encode(text, { special });
        assert.deepEqual(ours.encode(text, { special }), tokens, JSON.stringify(text));
        assert.equal(ours.decode(tokens, { special }), theirs.decode(tokens, { special }));
      }
    };
    for (const text of TEXTS) check(text);
    fc.assert(
      fc.property(fc.array(anyText, { maxLength: 4 }), (texts) => check(texts.join(''))),
      { seed: 9, numRuns: runs },
    );
  };

  it("converts a SentencePiece vocabulary: the result tokenizes as stories15m's own tokenizer does", async () => {
    const { directory: model } = await pullModel('stories15m');
    const { model: json } = JSON.parse(await readFile(join(model, 'tokenizer.json'), 'utf8')) as TokenizerJson;
    const tokens = Object.entries(json.vocab)
      .sort(([, a], [, b]) => a - b)
      .map(([text]) => text);
    // Llama's layout: 3 special tokens, 256 byte tokens, then ordinary tokens.
    const type = (id: number) => {
      if (id === 0) return TOKEN.unknown;
      if (id < 3) return TOKEN.control;
      return id < 3 + 256 ? TOKEN.byte : TOKEN.normal;
    };
    // tokenizer.json has no scores; the ranks of its merges give the same order.
    const scores = new Map(json.merges.map((merge, rank) => [(merge as string[]).join(''), -rank]));
    const ours = await load({
      'tokenizer.ggml.model': 'llama',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.scores': tokens.map((text) => scores.get(text) ?? 0),
      'tokenizer.ggml.token_type': tokens.map((_, id) => type(id)),
      'tokenizer.ggml.bos_token_id': 1,
      'tokenizer.ggml.eos_token_id': 2,
      'tokenizer.ggml.unknown_token_id': 0,
      // llama.cpp writes this for a model without a padding token.
      'tokenizer.ggml.padding_token_id': 2 ** 32 - 1,
    });
    assertSameTokens(ours, await loadTokenizer(model), 100);
    assert.deepEqual(ours.special, { bos: 1, eos: [2], pad: null, unknown: 0 });
  });

  it('converts added tokens, a chat template, and a vocabulary with or without a space before a text', async () => {
    // The id of a token is its index: `a` is 4, `ab` 6, `▁ab` 7, `<|im_end|>` 8 and `▁▁` 9.
    const tokens = ['<unk>', '<s>', '</s>', '▁', 'a', 'b', 'ab', '▁ab', '<|im_end|>', '▁▁', 'unused'];
    const { unknown, control, normal, added, unused } = TOKEN;
    const types = [unknown, control, control, ...new Array<number>(5).fill(normal), control, added, unused];
    const metadata: Metadata = {
      'tokenizer.ggml.model': 'llama',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.scores': tokens.map((_, id) => -id),
      'tokenizer.ggml.token_type': types,
      'tokenizer.ggml.bos_token_id': 1,
      'tokenizer.ggml.eos_token_id': 2,
      'tokenizer.chat_template': '{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}',
    };
    const prefixed = await load(metadata);
    assert.deepEqual([...prefixed.encode('ab ab')], [7, 7]);
    assert.equal(prefixed.decode([7, 7]), 'ab ab');
    const plain = await load({ ...metadata, 'tokenizer.ggml.add_space_prefix': false });
    assert.deepEqual([...plain.encode('ab ab')], [6, 7]);
    assert.equal(plain.decode([7, 7]), ' ab ab');
    assert.deepEqual([...plain.encode('a  ab<|im_end|>', { special: true })], [4, 9, 6, 8]);
    assert.equal(plain.decode([4, 9, 6]), 'a  ab');
    // The model may end its turn with `<|im_end|>`, which the file names only in the vocabulary.
    assert.deepEqual(plain.special.eos, [2, 8]);
    assert.equal(plain.applyChatTemplate([{ role: 'user', content: 'ab' }], true), '<s>ab');
    // With an `add_bos_token` of false the tokenizer has no BOS token, but a template that names `bos_token` still gets its text.
    for (const template of ['{{ 1 }}', '{{ bos_token }}{{ messages[0].content }}']) {
      const withoutBos = await load({
        ...metadata,
        'tokenizer.ggml.add_bos_token': false,
        'tokenizer.chat_template': template,
      });
      assert.equal(withoutBos.special.bos, null);
      const expected = template.includes('bos_token') ? '<s>ab' : '1';
      assert.equal(withoutBos.applyChatTemplate([{ role: 'user', content: 'ab' }], true), expected);
    }
  });

  it("converts a byte-level vocabulary: the result tokenizes as minimind2-small's own tokenizer does", async () => {
    const { directory: model } = await pullModel('minimind2-small');
    const json = JSON.parse(await readFile(join(model, 'tokenizer.json'), 'utf8')) as TokenizerJson;
    assertSameTokens(await load(asMetadata(json, 'gpt-2')), await loadTokenizer(model), 100);
  });

  it('treats tokens that begin or end a turn as control tokens, whatever type the file states', async () => {
    const controlNames = ['<|im_start|>', '<|im_end|>', '<e>', '<b>'];
    // The single characters after the names can spell each of the names.
    const tokens = [...new Set([...controlNames, ...'<|im_end>tbsra_'])];
    const metadata: Metadata = {
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'qwen2',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.merges': [],
      'tokenizer.ggml.eos_token_id': 2,
      'tokenizer.ggml.bos_token_id': 3,
    };
    for (const type of [undefined, TOKEN.normal, TOKEN.added, TOKEN.unused]) {
      const types = type && tokens.map((_, id) => (id < controlNames.length ? type : TOKEN.normal));
      const tokenizer = await load({ ...metadata, ...(types && { 'tokenizer.ggml.token_type': types }) });
      for (const [id, text] of controlNames.entries()) {
        assert.deepEqual([...tokenizer.encode(text, { special: true })], [id]);
        assert.equal(tokenizer.encode(text).length, text.length);
        assert.equal(tokenizer.decode([id]), '');
      }
      assert.deepEqual(tokenizer.special.eos, [2, 1]);
    }
  });

  it('refuses unsupported and malformed metadata, and names the key', async () => {
    const tokens = ['a', 'b', 'ab'];
    const metadata: Metadata = {
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'gpt-2',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.merges': ['a b'],
    };
    assert.deepEqual([...(await load(metadata)).encode('abb')], [2, 1]);
    const cases: [Metadata, string, RegExp][] = [
      [{ 'tokenizer.ggml.model': 'bert' }, 'unsupported-model', /"bert"/],
      [{ 'tokenizer.ggml.pre': 'tekken' }, 'unsupported-model', /"tekken"/],
      [{ 'tokenizer.ggml.pre': 'constructor' }, 'unsupported-model', /"constructor"/],
      [{ 'tokenizer.ggml.token_type': [1] }, 'malformed-tokenizer', /token_type" has 1 entries for 3/],
      [{ 'tokenizer.ggml.merges': ['ab'] }, 'malformed-tokenizer', /merge "ab"/],
      [{ 'tokenizer.ggml.merges': [1] }, 'malformed-tokenizer', /merges/],
      [{ 'tokenizer.ggml.tokens': ['a', 'b', 'a'] }, 'malformed-tokenizer', /two tokens are spelled "a"/],
      [{ 'tokenizer.ggml.model': 'llama' }, 'malformed-tokenizer', /scores" has 0 entries/],
      [
        {
          'tokenizer.ggml.model': 'llama',
          'tokenizer.ggml.tokens': ['a', 'b'.repeat(1_000_000)],
          'tokenizer.ggml.scores': [0, 0],
          'tokenizer.ggml.token_type': [1, 1],
        },
        'malformed-tokenizer',
        /token 1 has 1000000 characters/,
      ],
      [{ 'tokenizer.ggml.eos_token_id': 7 }, 'malformed-tokenizer', /eos_token_id/],
    ];
    for (const [wrong, code, message] of cases) {
      await assert.rejects(load({ ...metadata, ...wrong }), { code, message }, JSON.stringify(wrong));
    }
  });

  it('bounds the merges of a SentencePiece vocabulary by number and characters, and the work to find them', () => {
    const normal = (text: string): Piece => ({ text, score: 0, kind: 'normal' });
    // The work is bounded by 2²⁶ as the sum of length²: 1,100 × 256² is above the bound.
    const longTokens = Array.from({ length: 1_100 }, (_, id) => normal(String(id).padStart(256, '0')));
    assert.throws(() => sentencePieceTokenizer(longTokens), {
      code: 'malformed-tokenizer',
      message: /too many long tokens/,
    });
    // All strings of 1 to 16 binary digits: the binary digits of 2 to 2¹⁷ − 1, each number without its leading 1.
    const bitStrings = Array.from({ length: 2 ** 17 - 2 }, (_, id) => normal((id + 2).toString(2).slice(1)));
    assert.throws(() => sentencePieceTokenizer(bitStrings), {
      code: 'malformed-tokenizer',
      message: /more than 786432 merges/,
    });
    // For each of 60 characters, the runs of up to 96 copies give 4,560 merges with 64 characters on average. 60 × 4,560 × 64 characters are
    // more than the bound of 2²⁴.
    const runs = Array.from({ length: 60 * 96 }, (_, id) =>
      normal(String.fromCodePoint(0x4e00 + Math.floor(id / 96)).repeat(1 + (id % 96))),
    );
    assert.throws(() => sentencePieceTokenizer(runs), { code: 'malformed-tokenizer', message: /characters of merges/ });
  });

  // These tests download the tokenizers of four published models.
  describe('other families', { skip: !process.env.PIE_TEST_ALL && 'set PIE_TEST_ALL' }, () => {
    for (const [name, pre] of [
      ['llama3_2', 'llama-bpe'],
      ['qwen2_5', 'qwen2'],
      ['qwen3', 'qwen2'],
      ['gpt2', 'gpt-2'],
    ] as const) {
      it(`tokenizes as ${name}`, async () => {
        const published = await publishedTokenizer(name);
        const json = JSON.parse(await readFile(join(published, 'tokenizer.json'), 'utf8')) as TokenizerJson;
        assertSameTokens(await load(asMetadata(json, pre)), await loadTokenizer(published), 300);
      });
    }
  });
});
