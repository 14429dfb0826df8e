import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ModelError } from '../errors.ts';
import { randomEncoder } from '../testing/random-encoder.ts';
import { type EncoderKind, parseEncoderConfig, type SentenceFiles } from './config.ts';
import { loadEncoder } from './load.ts';
import { fitPair, loadEncoderTokenizer } from './tokenizer.ts';

const CONFIG = {
  model_type: 'bert',
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 64,
  vocab_size: 100,
};

const CLS = { pooling_mode_cls_token: true };
const step = (name: string) => ({ type: `sentence_transformers.models.${name}` });

describe('the config of an encoder', () => {
  const refused: Readonly<Record<string, readonly [change: object, kind?: EncoderKind, files?: SentenceFiles]>> = {
    'another family': [{ model_type: 'deberta-v2' }],
    'a decoder': [{ is_decoder: true }],
    'relative positions': [{ position_embedding_type: 'relative_key' }],
    'another activation': [{ hidden_act: 'silu' }],
    "an activation with the name of an object's member": [{ hidden_act: 'constructor' }],
    'quantised weights': [{ quantization_config: {} }],
    'a classifier with three labels': [{ id2label: { 0: 'a', 1: 'b', 2: 'c' } }, 'reranker'],
    'an unknown step in modules.json': [{}, 'embedding', { modules: [{ type: 'sentence_transformers.models.Dense' }] }],
    'another pooling': [{}, 'embedding', { pooling: { pooling_mode_max_tokens: true } }],
    "a pooling with the name of an object's member": [{}, 'embedding', { pooling: { pooling_mode: 'toString' } }],
    'a pooling in another folder': [
      {},
      'embedding',
      { modules: [step('Transformer'), { ...step('Pooling'), path: '2_Pooling' }], pooling: CLS },
    ],
    'modules.json without a pooling': [{}, 'embedding', { modules: [step('Transformer')], pooling: CLS }],
    'a prompt before each text': [{}, 'embedding', { library: { prompts: {}, default_prompt_name: 'query' } }],
    'a conversion to lower case outside the tokenizer': [{}, 'embedding', { sentence: { do_lower_case: true } }],
    'two poolings': [{}, 'embedding', { pooling: { pooling_mode_cls_token: true, pooling_mode_mean_tokens: true } }],
  };
  for (const [what, [change, kind = 'embedding', files = {}]] of Object.entries(refused)) {
    it(`refuses ${what}`, () => {
      const isUnsupported = (error: unknown) => error instanceof ModelError && error.code === 'unsupported-model';
      assert.throws(() => parseEncoderConfig({ ...CONFIG, ...change }, kind, files), isUnsupported);
    });
  }

  it('names a malformed field', () => {
    assert.throws(() => parseEncoderConfig({ ...CONFIG, hidden_size: 0 }, 'embedding'), /"hidden_size"/);
    assert.throws(() => parseEncoderConfig({ ...CONFIG, num_attention_heads: 5 }, 'embedding'), /5 heads/);
    assert.throws(() => parseEncoderConfig({ ...CONFIG, max_position_embeddings: 3 }, 'embedding'), /3 tokens/);
  });

  it('refuses the wrong values of each field with the name of the field', () => {
    const values = [null, true, 'x', '', -1, 0, 1.5, 2 ** 31, Number.NaN, [], {}, ['x']];
    const sizes = Object.fromEntries(Object.keys(CONFIG).map((field) => [field, []]));
    /** Fields of all families. Each has a list of those `values` that it accepts. */
    const common = {
      ...sizes,
      type_vocab_size: [],
      pad_token_id: [null, 0, 2 ** 31],
      layer_norm_eps: [],
      position_embedding_type: [null],
      is_decoder: [null],
      quantization_config: [null],
      id2label: [null, {}],
    };
    const families: Readonly<Record<string, Readonly<Record<string, readonly unknown[]>>>> = {
      bert: { ...common, hidden_act: [] },
      // The first position is the one after the padding's id, so a padding id of 2 ** 31 leaves no room.
      'xlm-roberta': { ...common, hidden_act: [], pad_token_id: [null, 0] },
      modernbert: {
        ...common,
        hidden_activation: [],
        norm_eps: [],
        local_attention: [],
        global_attn_every_n_layers: [],
        layer_types: [null],
        norm_bias: [],
        global_rope_theta: [1.5, 2 ** 31],
        local_rope_theta: [null, 1.5, 2 ** 31],
        rope_scaling: [null],
        rope_parameters: [null, {}],
        classifier_pooling: [],
      },
    };
    for (const [model_type, fields] of Object.entries(families))
      for (const [field, expected] of Object.entries(fields)) {
        const accepted = values.filter((value) => {
          try {
            parseEncoderConfig({ ...CONFIG, model_type, [field]: value }, 'reranker');
            return true;
          } catch (error) {
            assert.ok(error instanceof ModelError, `${field}: ${error}`);
            assert.ok(error.message.includes(field), `${field}, ${JSON.stringify(value)}: ${error.message}`);
            return false;
          }
        });
        assert.deepEqual(accepted, expected, `${model_type}: ${field}`);
      }
  });

  it('bounds the length of a text by positions, by sentence-transformers and by memory for attention scores', () => {
    const length = (change: object, sentence?: object) =>
      parseEncoderConfig({ ...CONFIG, ...change }, 'embedding', { sentence }).contextLength;
    assert.equal(length({}), 64);
    assert.equal(length({}, { max_seq_length: 32 }), 32);
    assert.equal(length({}, { max_seq_length: 128 }), 64);
    // The first position is `pad_token_id` + 1, so 2 of the 64 positions are lost.
    assert.equal(length({ model_type: 'xlm-roberta', pad_token_id: 1 }), 62);
    // The attention scores of 16 heads for 4,096 tokens take 1 GiB.
    assert.equal(length({ max_position_embeddings: 8192, num_attention_heads: 16 }), 4096);
    assert.equal(length({ max_position_embeddings: 8192, num_attention_heads: 4 }), 8192);
  });

  it("reads ModernBERT's layers and rotations in both forms of the config", () => {
    const modern = (change: object) =>
      parseEncoderConfig({ ...CONFIG, model_type: 'modernbert', num_hidden_layers: 4, ...change }, 'embedding');
    // The window is half of `local_attention`, which is 128 by default.
    const defaults = { window: 64, thetas: { all: 160_000, near: 10_000 } };
    const read = (change: object) => {
      const config = modern(change);
      assert.ok(config.family === 'modernbert');
      return { seesAll: config.seesAll, window: config.window, thetas: config.thetas };
    };
    assert.deepEqual(read({}), { ...defaults, seesAll: [true, false, false, true] });
    const layer_types = ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention'];
    const rope_parameters = { full_attention: { rope_type: 'default', rope_theta: 5 }, sliding_attention: null };
    assert.deepEqual(read({ layer_types, rope_parameters, local_attention: 9 }), {
      seesAll: [false, true, false, true],
      window: 4,
      thetas: { all: 5, near: 10_000 },
    });
    assert.deepEqual(read({ local_rope_theta: 7 }).thetas, { all: 160_000, near: 7 });
    assert.deepEqual(read({ global_rope_theta: 5, local_rope_theta: null }).thetas, { all: 5, near: 5 });
    assert.throws(() => modern({ layer_types: ['full_attention'] }), /"layer_types" has 1 of 4 layers/);
    assert.throws(() => modern({ num_attention_heads: 32 }), /"hidden_size" per head is odd/);
  });

  it('pools by the mean unless a file says otherwise, and normalises if sentence-transformers wrote no files', () => {
    const head = (files?: SentenceFiles) => parseEncoderConfig(CONFIG, 'embedding', files).head;
    assert.deepEqual(head(), { kind: 'embedding', pooling: 'mean', normalizes: true });
    const modules = ['Transformer', 'Pooling'].map(step);
    const pooling = { word_embedding_dimension: 32 };
    assert.deepEqual(head({ modules, pooling }), { kind: 'embedding', pooling: 'mean', normalizes: false });
  });

  it('refuses a model without the pooling file that its modules.json names', () => {
    const modules = ['Transformer', 'Pooling', 'Normalize'].map(step);
    assert.throws(() => parseEncoderConfig(CONFIG, 'embedding', { modules }), {
      code: 'missing-file',
      message: /1_Pooling\/config\.json/,
    });
  });
});

describe('the tokenizer of an encoder', () => {
  let root = '';
  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'pie-encoder-'));
  });
  after(() => rm(root, { recursive: true, force: true }));

  const tokenizers = async () => {
    const wordPieces = await randomEncoder(join(root, 'bert'), { kind: 'embedding' }, 1);
    const config = { model_type: 'xlm-roberta', type_vocab_size: 1, pad_token_id: 1 };
    const unigrams = await randomEncoder(join(root, 'roberta'), { kind: 'embedding', config }, 1);
    return Promise.all([wordPieces, unigrams].map((model) => loadEncoderTokenizer(model.directory, model.config)));
  };

  it('reads names of special tokens in a text as text', async () => {
    const [bert, roberta] = await tokenizers();
    // Ids below 5 are BERT's special tokens.
    const inside = (ids: Uint32Array) => [...ids.subarray(1, -1)];
    const written = bert!.encode('king [SEP] [CLS] [PAD] queen').tokens;
    assert.deepEqual(
      inside(written).filter((id) => id < 5),
      [],
    );
    // The vocabulary of a Unigram model contains the names of special tokens as pieces. They become `<unk>`, token 3.
    const pieces = roberta!.encode('king </s> <s> <pad> queen').tokens;
    assert.deepEqual(
      inside(pieces).filter((id) => id < 3),
      [],
    );
  });

  it('puts a space before a text and after an added token if `add_prefix_space` of an older file is true', async () => {
    const config = { model_type: 'xlm-roberta', type_vocab_size: 1, pad_token_id: 1 };
    const model = await randomEncoder(join(root, 'older'), { kind: 'embedding', config }, 1);
    const file = join(model.directory, 'tokenizer.json');
    const json = JSON.parse(await readFile(file, 'utf8')) as {
      readonly added_tokens: readonly object[];
      readonly model: { readonly vocab: readonly (readonly [string, number])[] };
    };
    const { vocab } = json.model;
    const added = { ...json.added_tokens[0], id: vocab.length, content: '<added>', special: false };
    const pieces = async (space: object, nested = false) => {
      const metaspace = { type: 'Metaspace', replacement: '▁', ...space };
      const pre_tokenizer = nested ? { type: 'Sequence', pretokenizers: [metaspace] } : metaspace;
      const added_tokens = [...json.added_tokens, added];
      await writeFile(file, JSON.stringify({ ...json, added_tokens, pre_tokenizer }));
      const { tokens } = (await loadEncoderTokenizer(model.directory, model.config)).encode('king<added>king king');
      return [...tokens.subarray(1, -1)].map((id) => vocab[id]?.[0] ?? added.content).join(' ');
    };
    assert.equal(await pieces({ add_prefix_space: true }), '▁king <added> ▁king ▁king');
    for (const nested of [false, true]) {
      assert.equal(await pieces({ add_prefix_space: false }, nested), 'k ing <added> k ing ▁king');
    }
  });

  it('marks the texts of a pair, and puts the special tokens around them', async () => {
    const [bert, roberta] = await tokenizers();
    const { tokens, types } = bert!.encodePair('king', 'queen');
    assert.deepEqual([...types], [0, 0, 0, 1, 1]);
    // Token 2 is `[CLS]`, token 3 is `[SEP]`. In the other model, token 0 is `<s>` and token 2 is `</s>`.
    assert.deepEqual([tokens[0], tokens[2], tokens[4]], [2, 3, 3]);
    const pair = roberta!.encodePair('king', 'queen');
    assert.deepEqual([...pair.types], new Array(pair.types.length).fill(0));
    assert.deepEqual(
      [...pair.tokens].filter((id) => id < 3),
      [0, 2, 2, 2],
    );
  });

  it('reports whether it cut the text', async () => {
    const [bert] = await tokenizers();
    const long = bert!.encode('king '.repeat(100));
    assert.deepEqual([long.tokens.length, long.isCut, long.tokens.at(-1)], [64, true, 3]);
    assert.equal(bert!.encode('king').isCut, false);
    // A word of this length is one unknown token, 1. The tokenizer does not read the word to its end.
    const word = bert!.encode('x'.repeat(1_000_000));
    assert.deepEqual([[...word.tokens], word.isCut], [[2, 1, 3], true]);
  });

  it('reads only the part of a long text that the model has room for, and gives the same tokens', async () => {
    const config = { model_type: 'xlm-roberta', type_vocab_size: 1, pad_token_id: 1, max_position_embeddings: 16_386 };
    const models = [
      await randomEncoder(join(root, 'long-bert'), { kind: 'embedding', config: { max_position_embeddings: 8192 } }, 1),
      await randomEncoder(join(root, 'long-roberta'), { kind: 'embedding', config }, 1),
    ];
    const texts = [
      'the king of france, un king. '.repeat(200),
      'kingqueen'.repeat(400),
      `${' '.repeat(700)}paris king`,
    ];
    for (const { directory } of models) {
      const [short, long] = await Promise.all(
        [64, 8192].map((contextLength) => loadEncoderTokenizer(directory, { contextLength, tokenTypes: 1 })),
      );
      // The last of the 64 tokens is the special token that ends a text.
      for (const text of texts)
        assert.deepEqual(short!.encode(text).tokens.slice(0, 63), long!.encode(text).tokens.slice(0, 63));
      // If the library tokenized the whole of this text, its stack would overflow.
      const { tokens, isCut } = long!.encode('. '.repeat(131_072));
      assert.deepEqual([tokens.length, isCut], [8192, true]);
    }
  });

  it('fitPair takes tokens from the longer text first', () => {
    // Lengths of the two texts, room for both, and the lengths that are kept.
    const cases = [
      [10, 3, 8, 5, 3],
      [3, 10, 8, 3, 5],
      [10, 10, 9, 4, 5],
      [11, 10, 9, 5, 4],
      [2, 2, 10, 2, 2],
      [9, 0, 4, 4, 0],
      [0, 9, 4, 0, 4],
    ] as const;
    for (const [first, second, room, ...kept] of cases) assert.deepEqual(fitPair(first, second, room), kept);
  });

  it('refuses a file that does not say where special tokens stand, or names a token that it lacks', async () => {
    const { directory, config } = await randomEncoder(join(root, 'bare'), { kind: 'embedding' }, 1);
    const file = join(directory, 'tokenizer.json');
    const json = JSON.parse(await readFile(file, 'utf8')) as object;
    const load = async (processor: unknown) => {
      await writeFile(file, JSON.stringify({ ...json, post_processor: processor }));
      return loadEncoderTokenizer(directory, config);
    };
    await assert.rejects(load(null), /post_processor/);
    const deep = '{"type":"Sequence","processors":['.repeat(20_000) + ']}'.repeat(20_000);
    await writeFile(file, `{"model":{},"post_processor":${deep}}`);
    await assert.rejects(loadEncoderTokenizer(directory, config), { code: 'unsupported-model' });
    for (const id of ['[CLS]', '__proto__']) {
      const single = [{ SpecialToken: { id, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }];
      const template = { type: 'TemplateProcessing', single, pair: [], special_tokens: {} };
      await assert.rejects(load(template), { code: 'malformed-tokenizer', message: /unknown special token/ });
    }
    const text = { Sequence: { id: 'A', type_id: 0 } };
    const special_tokens = { '[CLS]': { ids: new Array(config.contextLength).fill(2) } };
    for (const single of [
      [text, text],
      [{ SpecialToken: { id: '[CLS]', type_id: 0 } }, text],
    ]) {
      const template = { type: 'TemplateProcessing', single, pair: [], special_tokens };
      await assert.rejects(load(template), { code: 'malformed-tokenizer', message: /template of a single/ });
    }
  });
});

describe('the weights of an encoder', () => {
  it('names a weight that is missing', async () => {
    const root = await mkdtemp(join(tmpdir(), 'pie-encoder-'));
    try {
      await randomEncoder(root, { kind: 'embedding' }, 1);
      await assert.rejects(loadEncoder(root, 'reranker'), /pooler\.dense\.weight/);
    } finally {
      await rm(root, { recursive: true, force: true });
    }
  });
});
