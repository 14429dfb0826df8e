import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { configToJson } from '../../config.ts';
import type { ModelError } from '../../errors.ts';
import { pullModel } from '../../pull.ts';
import { publishedTokenizer } from '../../testing/published-tokenizer.ts';
import { tinyConfig } from '../../testing/random-model.ts';
import { loadTokenizer, type Tokenizer } from '../../tokenizer.ts';
import { type Piece, sentencePieceTokenizer } from '../sentencepiece.ts';
import type { MetadataValue } from './header.ts';
import { byteLevelEntries, shortTexts, type TokenizerJson, trainedVocabulary } from './testing/tokenizer.ts';
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

/** What llama.cpp does (`fixtures/tokens-golden.ts`). */
interface Golden {
  /** Each rule has the index of its cuts, and for each text the index of its tokens. */
  readonly words: {
    readonly characters: string;
    readonly texts: readonly string[];
    readonly rules: Readonly<
      Record<string, { readonly bos: boolean; readonly cuts: number; readonly tokens: readonly number[] }>
    >;
    readonly cuts: readonly string[];
    readonly tokens: readonly (readonly (readonly number[])[])[];
  };
  readonly sentencePiece: {
    readonly texts: readonly string[];
    readonly entries: readonly (readonly [string, MetadataValue])[];
    readonly cases: readonly {
      readonly entries: readonly (readonly [string, MetadataValue])[];
      readonly bos: boolean;
      readonly ends: readonly number[];
      readonly literal: readonly (readonly number[])[];
      readonly special: readonly (readonly number[])[];
    }[];
  };
  readonly ends: readonly (readonly [tokens: readonly string[], ends: readonly string[]])[];
}
const GOLDEN: Golden = JSON.parse(await readFile(join(import.meta.dirname, 'fixtures/tokens-golden.json'), 'utf8'));

/**
 * Rules for which llama.cpp differs from the models' own tokenizers, with the texts concerned. It knows upper case only in ASCII, and for a
 * class with a range over CJK it takes all spaces beyond ASCII as one control character.
 */
const APPROXIMATED: readonly [rules: RegExp, texts: RegExp][] = [
  [/^(tekken|gpt-4o|llama4|kanana2|talkie|minimax-m2)$/, /\p{M}|[^\P{Lu}A-Z]|[^\P{Ll}a-z]/u],
  [/^deepseek-(llm|coder)$/, /[\u2000-\u200a\u2028]/],
];

const asMetadata = (json: TokenizerJson, pre: string): Metadata =>
  Object.fromEntries(byteLevelEntries(json, pre).map(([key, , value]) => [key, value as MetadataValue]));

/** The metadata that llama.cpp's converter writes for a SentencePiece vocabulary, from its tokenizer.json. */
function asSentencePiece({ added_tokens, model: { vocab, merges } }: TokenizerJson): Metadata {
  const added = new Map(added_tokens.map((token) => [token.id, token]));
  const ids = new Map(Object.entries(vocab).map(([text, id]) => [id, text]));
  for (const { id, content } of added_tokens) ids.set(id, content);
  // tokenizer.json has no scores; the ranks of its merges give the same order. A piece can have several merges, with neighbouring ranks.
  const scores = new Map<string, number>();
  for (const [rank, merge] of merges.entries()) {
    const whole = typeof merge === 'string' ? merge.replace(' ', '') : merge.join('');
    if (!scores.has(whole)) scores.set(whole, -rank);
  }
  const tokens = Array.from({ length: ids.size }, (_, id) => ids.get(id)!);
  const type = (id: number) => {
    if (tokens[id] === '<unk>') return TOKEN.unknown;
    if (/^<0x..>$/.test(tokens[id]!)) return TOKEN.byte;
    const token = added.get(id);
    if (token === undefined) return TOKEN.normal;
    return token.special ? TOKEN.control : TOKEN.added;
  };
  return {
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': tokens.map((text, id) => (type(id) === TOKEN.added ? text.replaceAll('▁', ' ') : text)),
    'tokenizer.ggml.scores': tokens.map((text) => scores.get(text) ?? 0),
    'tokenizer.ggml.token_type': tokens.map((_, id) => type(id)),
  };
}

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
    const json = JSON.parse(await readFile(join(model, 'tokenizer.json'), 'utf8')) as TokenizerJson;
    const ours = await load({
      ...asSentencePiece(json),
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

  it('cuts words and adds BOS as llama.cpp does, for each of its names', async () => {
    const { characters, texts, rules, cuts, tokens } = GOLDEN.words;
    const short = shortTexts(characters);
    const trained = trainedVocabulary(short, texts.slice(0, -1));
    const vocab: Record<string, number> = { ...trained.model.vocab };
    // The last text is this word. No merges make it, so a tokenizer finds it only if it looks up words before merging.
    vocab.Ġunmergeable = Object.keys(vocab).length;
    const bos = Object.keys(vocab).length;
    vocab['<bos>'] = bos;
    /** Tokenizer and the cuts that it gives, by the rules in its tokenizer.json, which many names share. */
    const known = new Map<string, { tokenizer: Tokenizer; cuts: string[] }>();
    for (const [name, rule] of Object.entries(rules)) {
      const metadata = asMetadata({ ...trained, model: { ...trained.model, vocab } }, name);
      if (name === '') delete metadata['tokenizer.ggml.pre'];
      metadata['tokenizer.ggml.bos_token_id'] = bos;
      const entries = new Map(Object.entries(metadata));
      assert.equal(specialIds(entries).bos, rule.bos ? bos : null, name);
      const config = tinyConfig({ vocabularySize: Object.keys(vocab).length });
      const key = JSON.stringify(ggufTokenizer(entries, config).tokenizer);
      let words = known.get(key);
      if (words === undefined) {
        const tokenizer = await load(metadata);
        words = { tokenizer, cuts: short.map((text) => cutsOf(tokenizer, text)) };
        known.set(key, words);
      }
      const { tokenizer } = words;
      const approximated = APPROXIMATED.find(([names]) => names.test(name))?.[1];
      const composes = tokenizer.encode('e\u0301').join() === tokenizer.encode('\xe9').join();
      const isComparable = (text: string) => !approximated?.test(text) && (!composes || text === text.normalize('NFC'));
      const expectedCuts = cuts[rule.cuts]!;
      for (const [i, text] of short.entries())
        if (isComparable(text)) assert.equal(words.cuts[i], expectedCuts[i], `${name}: ${JSON.stringify(text)}`);
      for (const [i, text] of texts.entries())
        if (isComparable(text)) assert.deepEqual([...tokenizer.encode(text)], tokens[i]![rule.tokens[i]!], name);
    }
    // The golden has every name that the converter knows.
    const unknown = new Map(Object.entries(asMetadata(trained, 'unheard-of')));
    assert.throws(
      () => ggufTokenizer(unknown, tinyConfig({ vocabularySize: Object.keys(vocab).length })),
      ({ hint }: ModelError) => {
        const [, names = ''] = /^known: (.*);/.exec(hint ?? '') ?? [];
        assert.deepEqual(names.split(', ').sort(), Object.keys(rules).filter(Boolean).sort());
        return true;
      },
    );
  });

  /** The cuts of a text of up to three characters, in the digits of the golden. */
  function cutsOf(tokenizer: Tokenizer, text: string): string {
    const ids = [...tokenizer.encode(text)];
    const ends = ids.map((_, i) => Buffer.concat(ids.slice(0, i + 1).map((id) => tokenizer.tokenBytes(id))).length);
    const [first = '', second = ''] = text;
    const isCut = (before: string) => before !== text && ends.includes(Buffer.from(before).length);
    return String(Number(isCut(first)) + 2 * Number(isCut(first + second)));
  }

  it('tokenizes with a SentencePiece vocabulary, its added tokens and its special tokens as llama.cpp does', async () => {
    const { texts, entries, cases } = GOLDEN.sentencePiece;
    const check = async (more: Metadata, { bos, ends, literal, special }: (typeof cases)[number]) => {
      const tokenizer = await load({ ...Object.fromEntries(entries), ...more });
      assert.equal(tokenizer.special.bos, bos ? 1 : null);
      assert.deepEqual([...tokenizer.special.eos].sort(), [...ends].sort());
      for (const [i, text] of texts.entries()) {
        const what = JSON.stringify([more, text]);
        assert.deepEqual([...tokenizer.encode(text)], literal[i], what);
        assert.deepEqual([...tokenizer.encode(text, { special: true })], special[i], `special ${what}`);
      }
    };
    for (const golden of cases) await check(Object.fromEntries(golden.entries), golden);
    // llama.cpp tells Phi-3 only by its name.
    await check({ 'general.architecture': 'phi3' }, cases.at(-1)!);
  });

  it('ends a text at the tokens at which llama.cpp does', () => {
    for (const [names, expected] of GOLDEN.ends) {
      const metadata: Metadata = {
        'tokenizer.ggml.model': 'gpt2',
        'tokenizer.ggml.tokens': [...names],
        'tokenizer.ggml.token_type': names.map(() => TOKEN.control),
        'tokenizer.ggml.merges': [],
      };
      const { eos } = specialIds(new Map(Object.entries(metadata)));
      assert.deepEqual(eos.map((id) => names[id]).sort(), [...expected].sort(), names.join(' '));
    }
    const gemma: Metadata = {
      'tokenizer.ggml.model': 'llama',
      'tokenizer.ggml.tokens': ['<unk>', '<bos>', '<eos>', '</s>', '<end_of_turn>', 'a'],
      'tokenizer.ggml.token_type': [
        TOKEN.unknown,
        TOKEN.control,
        TOKEN.control,
        TOKEN.added,
        TOKEN.added,
        TOKEN.normal,
      ],
    };
    const eosOf = (more: Metadata) => specialIds(new Map(Object.entries({ ...gemma, ...more }))).eos;
    // Without ids in the file, those of SentencePiece; and Gemma's `</s>` is a tag of HTML.
    assert.deepEqual(eosOf({}), [2, 4]);
    assert.deepEqual(eosOf({ 'tokenizer.ggml.eos_token_id': 3 }), [3, 2, 4]);
    // In Phi-3, `<s>` and `</s>` are a pair, though the file types `</s>` as an ordinary added token.
    assert.deepEqual(eosOf({ 'tokenizer.ggml.tokens': ['<unk>', '<s>', '<|end|>', '</s>', 'a', 'b'] }), [2, 3]);
    const stated = { eos: 1, eot: 5, fim_pad: 0, fim_sep: 3 };
    const keys = Object.entries(stated).map(([name, id]) => [`tokenizer.ggml.${name}_token_id`, id]);
    assert.deepEqual(eosOf(Object.fromEntries(keys)), [1, 5, 0, 2, 4]);
  });

  it('keeps named chat templates, and names tokens without text', async () => {
    const metadata: Metadata = {
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'gpt-2',
      'tokenizer.ggml.tokens': ['a', '', 'b', '', '<unk>'],
      'tokenizer.ggml.token_type': [TOKEN.normal, TOKEN.normal, TOKEN.normal, TOKEN.normal, TOKEN.unknown],
      'tokenizer.ggml.merges': [],
      'tokenizer.chat_template.tool_use': 'tools',
    };
    const templateOf = async (more: Metadata) =>
      (await load({ ...metadata, ...more })).applyChatTemplate([{ role: 'user', content: 'a' }], true);
    assert.equal(await templateOf({}), 'tools');
    assert.equal(await templateOf({ 'tokenizer.chat_template': 'plain' }), 'plain');
    const config = tinyConfig({ vocabularySize: 5 });
    const entries = Object.entries({ ...metadata, 'tokenizer.chat_template': 'plain', 'tokenizer.chat_template.x': 7 });
    assert.deepEqual((ggufTokenizer(new Map(entries), config).settings as { chat_template: unknown }).chat_template, [
      { name: 'default', template: 'plain' },
      { name: 'tool_use', template: 'tools' },
    ]);
    const tokenizer = await load(metadata);
    assert.deepEqual([...tokenizer.encode('ab<unk>a', { special: true })], [0, 2, 4, 0]);
    assert.equal(tokenizer.decode([0, 1, 3, 4, 2]), 'ab');
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
    // Nor do merges make a control token.
    const merged = await load({ ...metadata, 'tokenizer.ggml.merges': ['< e', '<e >', '< b', 'b >', '< b>'] });
    const parts = ['<', 'e', '>', '<', 'b', '>'].map((text) => tokens.indexOf(text));
    assert.deepEqual([...merged.encode('<e><b>')], parts);
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
      [{ 'tokenizer.ggml.pre': 'unheard-of' }, 'unsupported-model', /"unheard-of"/],
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

  // These tests download the tokenizers of published models.
  describe('other families', { skip: !process.env.PIE_TEST_ALL && 'set PIE_TEST_ALL' }, () => {
    for (const [name, pre] of [
      ['llama3_2', 'llama-bpe'],
      ['qwen2_5', 'qwen2'],
      ['qwen3', 'qwen2'],
      ['gpt2', 'gpt-2'],
      ['mistral_nemo', 'tekken'],
      ['gptoss', 'gpt-4o'],
      ['deepseek_v3', 'deepseek-v3'],
      ['command_r_plus', 'command-r'],
    ] as const) {
      it(`tokenizes as ${name}`, async () => {
        const published = await publishedTokenizer(name);
        const json = JSON.parse(await readFile(join(published, 'tokenizer.json'), 'utf8')) as TokenizerJson;
        assertSameTokens(await load(asMetadata(json, pre)), await loadTokenizer(published), 300);
      });
    }

    for (const name of ['llama2', 'gemma3']) {
      it(`tokenizes as ${name}`, async () => {
        const published = await publishedTokenizer(name);
        const json = JSON.parse(await readFile(join(published, 'tokenizer.json'), 'utf8')) as TokenizerJson;
        const prefix = { 'tokenizer.ggml.add_space_prefix': name === 'llama2' };
        const ids = { 'tokenizer.ggml.bos_token_id': 2, 'tokenizer.ggml.eos_token_id': 1 };
        const ours = await load({ ...asSentencePiece(json), ...prefix, ...(name === 'gemma3' && ids) });
        assertSameTokens(ours, await loadTokenizer(published), 300);
      });
    }
  });
});
