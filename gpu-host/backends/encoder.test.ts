import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type EncodedText, loadEncoderTokenizer } from '#gpu-host/models/encoder/tokenizer.ts';
import { type RandomEncoderOptions, randomEncoder } from '../models/testing/random-encoder.ts';
import { OnnxEncoder } from './onnx/encoder.ts';

const read = (name: string): unknown =>
  JSON.parse(readFileSync(new URL(`./fixtures/${name}`, import.meta.url), 'utf8'));

interface Cases {
  readonly texts: readonly string[];
  readonly pairs: readonly (readonly [string, string])[];
  readonly models: Readonly<
    Record<
      string,
      { kind: 'embedding' | 'reranker'; pooling?: 'mean_tokens' | 'cls_token'; normalizes?: boolean; maxTokens: number }
    >
  >;
}

/** Texts and models of the golden results. */
const CASES = read('encoder-cases.json') as Cases;
/** Results of transformers for the same weights in float64 (`fixtures/encoder-golden.py`), to eight digits after the point. */
const GOLDEN = read('encoder-golden.json') as Record<string, readonly { tokens: number[]; values: number[] }[]>;

/** A ModernBERT with layers of both kinds: global attention, and local attention with a window that is shorter than most texts. */
const MODERN = {
  model_type: 'modernbert',
  num_hidden_layers: 4,
  local_attention: 8,
  norm_eps: 1e-5,
  bos_token_id: 2,
  cls_token_id: 2,
  eos_token_id: 3,
  sep_token_id: 3,
};

/** Options of the models that are not in encoder-cases.json: names of weights, and settings that differ from the defaults. */
const MODEL_OPTIONS: Readonly<Record<string, Omit<RandomEncoderOptions, 'kind'>>> = {
  bert: {},
  first: { prefix: 'bert.', oldNorms: true, config: { hidden_act: 'gelu_new', layer_norm_eps: 1e-5 } },
  roberta: { config: { model_type: 'xlm-roberta', type_vocab_size: 1, pad_token_id: 1, hidden_act: 'relu' } },
  modern: { config: MODERN },
  'modern-reranker': {
    prefix: 'model.',
    config: { ...MODERN, global_attn_every_n_layers: 2, classifier_pooling: 'mean', hidden_activation: 'gelu_new' },
  },
  'bert-reranker': { prefix: 'bert.' },
  'roberta-reranker': {
    prefix: 'roberta.',
    config: { model_type: 'xlm-roberta', type_vocab_size: 1, pad_token_id: 1 },
  },
};

/** Largest allowed error. The values reach 20, and the encoder computes in float32. */
const ERROR = 2e-5;
const SEED = 7;

describe('encoders', () => {
  let directory = '';
  const opened: OnnxEncoder[] = [];
  before(async () => {
    directory = process.env.PIE_GOLDEN_MODELS ?? (await mkdtemp(join(tmpdir(), 'pie-encoders-')));
  });
  after(async () => {
    for (const encoder of opened) await encoder.dispose();
    if (!process.env.PIE_GOLDEN_MODELS) await rm(directory, { recursive: true, force: true });
  });

  const open = async (name: string) => {
    const { kind, pooling: mode, normalizes = false, maxTokens } = CASES.models[name]!;
    const pooling = mode && { mode, normalizes, maxTokens };
    const model = await randomEncoder(
      join(directory, name),
      { kind, ...(pooling && { pooling }), ...MODEL_OPTIONS[name] },
      SEED,
    );
    const encoder = await OnnxEncoder.open(model, { threads: 1 });
    opened.push(encoder);
    return { model, encoder, tokenizer: await loadEncoderTokenizer(model.directory, model.config) };
  };

  for (const [name, { kind, maxTokens }] of Object.entries(CASES.models)) {
    it(`${name}: tokens and values equal those of transformers, in one batch and one by one`, async () => {
      const { encoder, tokenizer, model } = await open(name);
      assert.equal(model.config.contextLength, maxTokens);
      const inputs: readonly EncodedText[] =
        kind === 'embedding'
          ? CASES.texts.map((text) => tokenizer.encode(text))
          : CASES.pairs.map((pair) => tokenizer.encodePair(...pair));
      const golden = GOLDEN[name]!;
      for (const [i, { tokens }] of inputs.entries()) {
        // In a text, `[SEP]` is plain text for this tokenizer. transformers makes it the special token.
        const namesSpecialToken = kind === 'embedding' && CASES.texts[i]!.includes('[SEP]');
        if (!namesSpecialToken) assert.deepEqual([...tokens], golden[i]!.tokens);
        assert.ok(tokens.length <= maxTokens);
      }
      // From here on the tokens of transformers are the input, so that each value has the same input on both sides.
      const asTransformers = inputs.map((input, i) => ({
        tokens: Uint32Array.from(golden[i]!.tokens),
        types: input.types.length === golden[i]!.tokens.length ? input.types : new Uint8Array(golden[i]!.tokens.length),
      }));
      const together = await encoder.encode(asTransformers);
      for (const [i, input] of asTransformers.entries()) {
        const [alone] = await encoder.encode([input]);
        for (const found of [together[i]!, alone!]) {
          assert.equal(found.length, golden[i]!.values.length);
          const errors = golden[i]!.values.map((value, k) => Math.abs(value - found[k]!));
          assert.ok(Math.max(...errors) < ERROR, `text ${i}: ${Math.max(...errors)}`);
        }
      }
    });
  }

  it('an empty batch has no results', async () => {
    const { encoder } = await open('bert');
    assert.deepEqual(await encoder.encode([]), []);
  });
});
