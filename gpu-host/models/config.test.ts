import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { configToJson, defaultPages, type ModelConfig, parseConfig } from './config.ts';
import { ModelError } from './errors.ts';
import { expectedTensors } from './load.ts';

const llama = {
  model_type: 'llama',
  hidden_size: 2048,
  intermediate_size: 8192,
  num_hidden_layers: 16,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  head_dim: 64,
  vocab_size: 128256,
  max_position_embeddings: 131072,
  rope_theta: 500000.0,
  rope_scaling: {
    factor: 32.0,
    high_freq_factor: 4.0,
    low_freq_factor: 1.0,
    original_max_position_embeddings: 8192,
    rope_type: 'llama3',
  },
  rms_norm_eps: 1e-5,
  tie_word_embeddings: true,
  attention_bias: false,
  mlp_bias: false,
  hidden_act: 'silu',
  bos_token_id: 128000,
  eos_token_id: [128001, 128008],
};

const LLAMA3 = { factor: 32, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalContextLength: 8192 };

function assertRefused(json: object, code: string, message: RegExp): void {
  assert.throws(
    () => parseConfig(json),
    (error) => error instanceof ModelError && error.code === code && message.test(error.message),
  );
}

describe('parseConfig', () => {
  it('reads Llama 3.2, with the end tokens of generation_config.json too', () => {
    const config = parseConfig(llama, { eos_token_id: [128001, 128009] });
    assert.deepEqual(config.ropeScaling, LLAMA3);
    assert.deepEqual(config.eosTokenIds, [128001, 128008, 128009]);
    assert.equal(config.tiedEmbeddings, true);
    assert.equal(config.kvHeads, 8);
  });

  it('leaves out tokens that the vocabulary does not have', () => {
    const { vocab_size } = llama;
    const config = parseConfig({ ...llama, bos_token_id: vocab_size, eos_token_id: [2, vocab_size] });
    assert.deepEqual([config.bosTokenId, config.eosTokenIds], [null, [2]]);
  });

  it('fills in what older files leave out', () => {
    const { head_dim, num_key_value_heads, rope_scaling, rope_theta, tie_word_embeddings, eos_token_id, ...old } =
      llama;
    const config = parseConfig(old);
    assert.equal(config.headDim, 64);
    assert.equal(config.kvHeads, 32);
    assert.equal(config.ropeTheta, 10_000);
    assert.equal(config.ropeScaling, null);
    assert.equal(config.tiedEmbeddings, false);
    assert.deepEqual(config.eosTokenIds, []);
  });

  it('reads the rope_parameters of transformers 5', () => {
    const { rope_theta, rope_scaling, ...rest } = llama;
    const config = parseConfig({ ...rest, rope_parameters: { ...rope_scaling, rope_theta } });
    assert.equal(config.ropeTheta, 500_000);
    assert.equal(config.ropeScaling?.factor, 32);
  });

  it('reads back what configToJson writes', () => {
    for (const model_type of ['llama', 'mistral', 'qwen2', 'qwen3']) {
      for (const rope_scaling of [llama.rope_scaling, null, { type: 'linear', factor: 4 }]) {
        const config = parseConfig({ ...llama, model_type, rope_scaling });
        assert.deepEqual(parseConfig(configToJson(config)), config);
      }
    }
  });

  it('names the field that is wrong', () => {
    assertRefused({ ...llama, hidden_size: '2048' }, 'malformed-config', /"hidden_size"/);
    assertRefused({ ...llama, num_hidden_layers: 1e9 }, 'malformed-config', /"num_hidden_layers"/);
    assertRefused({ ...llama, rms_norm_eps: undefined }, 'malformed-config', /"rms_norm_eps"/);
    assertRefused(
      { ...llama, num_key_value_heads: 5 },
      'malformed-config',
      /"num_key_value_heads".*5 key and value heads/,
    );
    assertRefused({ ...llama, head_dim: 63 }, 'malformed-config', /"head_dim".*63/);
    assertRefused([], 'malformed-config', /config.json/);
    assertRefused({}, 'malformed-config', /model_type/);
  });
});

/** Fields that replace those of the base config, and the expected outcome: parts of the result, or the field that the refusal names. */
type Variant = readonly [changed: Record<string, unknown>, expected: Partial<ReturnType<typeof parseConfig>> | RegExp];

const withRopeScaling = (rope_scaling: object) => ({ rope_scaling });
const CONTEXT = llama.max_position_embeddings;
const EVERY_FAMILY: readonly Variant[] = [
  [{ hidden_act: 'silu' }, {}],
  [{ hidden_act: 'swish' }, {}],
  [{ hidden_act: null }, {}],
  [{ hidden_act: 'gelu' }, /"hidden_act".*gelu/],
  [{ mlp_bias: false }, {}],
  [{ mlp_bias: true }, /"mlp_bias"/],
  [{ tie_word_embeddings: false }, { tiedEmbeddings: false }],
  [{ tie_word_embeddings: true }, { tiedEmbeddings: true }],
  [{ tie_word_embeddings: null }, { tiedEmbeddings: false }],
  [{ head_dim: 128 }, { headDim: 128 }],
  [{ head_dim: null }, { headDim: 64 }],
  [{ num_key_value_heads: null }, { kvHeads: 32 }],
  [{ quantization_config: null }, {}],
  [{ quantization_config: { quant_method: 'gptq' } }, /"quantization_config"/],
  [{ partial_rotary_factor: 1 }, {}],
  [{ partial_rotary_factor: 0.5 }, /"partial_rotary_factor"/],
  [{ rope_interleaved: false }, {}],
  [{ rope_interleaved: true }, /"rope_interleaved"/],
  [{ architectures: ['AnyForCausalLM'], pretraining_tp: 2, attention_dropout: 0.1, use_cache: false }, {}],
  [{ architectures: ['AnyForSequenceClassification'] }, /"architectures".*SequenceClassification/],
  [withRopeScaling({ rope_type: 'default' }), { ropeScaling: null }],
  [withRopeScaling({ type: 'linear', factor: 4 }), { ropeScaling: { factor: 4 } }],
  [withRopeScaling({ rope_type: 'linear' }), /"rope_scaling".*factor/],
  [withRopeScaling({ type: 'dynamic', factor: 2 }), { ropeScaling: null, contextLength: CONTEXT }],
  [withRopeScaling({ ...llama.rope_scaling, factor: 8 }), { ropeScaling: { ...LLAMA3, factor: 8 } }],
  [withRopeScaling({ rope_type: 'llama3', factor: 8 }), /"rope_scaling".*four parameters/],
  [withRopeScaling({ type: 'yarn', factor: 4 }), /"rope_scaling".*yarn/],
  [withRopeScaling({ rope_type: 'longrope', short_factor: [1] }), /"rope_scaling".*longrope/],
  [{ rope_parameters: { rope_type: 'linear', factor: 2, rope_theta: 7 } }, { ropeScaling: { factor: 2 } }],
  [{ rope_parameters: { rope_type: 'yarn', factor: 4 } }, /"rope_parameters".*yarn/],
  [{ rope_parameters: { rope_type: 'default', partial_rotary_factor: 0.5 } }, /"rope_parameters".*partial_rotary/],
  [{ rope_parameters: { full_attention: { rope_theta: 1e6 } } }, /"rope_parameters".*type of layer/],
  [{ layer_types: ['full_attention'] }, { contextLength: CONTEXT }],
  [{ layer_types: ['full_attention', 'chunked_attention'] }, /"layer_types".*chunked/],
];
const activeWindow = { use_sliding_window: true, sliding_window: 4096 };
/**
 * Variants of Qwen 2 and 3. The base config has 16 layers. The default of `max_window_layers` is 28. A field that is `undefined` here is absent
 * from the file.
 */
const QWEN: readonly Variant[] = [
  [{ sliding_window: 4096, use_sliding_window: false, max_window_layers: 0 }, { contextLength: CONTEXT }],
  [{ sliding_window: 4096 }, { contextLength: CONTEXT }],
  [{ ...activeWindow, max_window_layers: 15 }, { contextLength: 4096 }],
  [{ ...activeWindow, max_window_layers: 16 }, { contextLength: CONTEXT }],
  [{ ...activeWindow }, { contextLength: CONTEXT }],
  [{ ...activeWindow, num_hidden_layers: 29 }, { contextLength: 4096 }],
  [{ use_sliding_window: true, sliding_window: undefined, max_window_layers: 0 }, { contextLength: 4096 }],
  [{ ...activeWindow, layer_types: ['full_attention', 'sliding_attention'] }, { contextLength: 4096 }],
  [{ ...activeWindow, max_window_layers: 0, layer_types: ['full_attention'] }, { contextLength: CONTEXT }],
];
const FAMILY_VARIANTS: Readonly<Record<string, readonly Variant[]>> = {
  llama: [
    [{ attention_bias: false }, { attentionBias: false, queryKeyNorm: false }],
    [{ attention_bias: true }, /"attention_bias"/],
    [
      { num_key_value_heads: undefined, head_dim: undefined },
      { kvHeads: 32, headDim: 64 },
    ],
    [{ sliding_window: 4096 }, { contextLength: CONTEXT }],
  ],
  mistral: [
    [{ attention_bias: true }, /"attention_bias"/],
    [{ sliding_window: 4096 }, { contextLength: 4096 }],
    [{ sliding_window: 2 ** 20 }, { contextLength: CONTEXT }],
    [{ sliding_window: null }, { contextLength: CONTEXT }],
    [{ sliding_window: undefined }, { contextLength: 4096 }],
    [
      { num_key_value_heads: undefined, head_dim: undefined },
      { kvHeads: 8, headDim: 64 },
    ],
  ],
  qwen2: [
    ...QWEN,
    [{ attention_bias: true }, { attentionBias: true }],
    [{ head_dim: undefined }, { headDim: 64, attentionBias: true, queryKeyNorm: false }],
  ],
  qwen3: [
    ...QWEN,
    [{ attention_bias: true }, /"attention_bias"/],
    [{ head_dim: undefined }, { headDim: 128, attentionBias: false, queryKeyNorm: true }],
  ],
};

describe('variants of config.json', () => {
  for (const [family, variants] of Object.entries(FAMILY_VARIANTS)) {
    it(`${family}: reads or refuses each variant`, () => {
      const base = {
        ...llama,
        model_type: family,
        rope_scaling: null,
        tie_word_embeddings: false,
        sliding_window: null,
      };
      for (const [changed, expected] of [...EVERY_FAMILY, ...variants]) {
        const json: unknown = JSON.parse(JSON.stringify({ ...base, ...changed }));
        const label = JSON.stringify([family, changed]);
        if (expected instanceof RegExp) {
          assert.throws(() => parseConfig(json), { name: 'ModelError', message: expected }, label);
          continue;
        }
        const config = parseConfig(json);
        for (const [key, value] of Object.entries(expected))
          assert.deepEqual(config[key as keyof typeof config], value, `${label}: ${key}`);
      }
    });
  }
});

const common = {
  hidden_act: 'silu',
  rms_norm_eps: 1e-5,
  tie_word_embeddings: false,
  torch_dtype: 'bfloat16',
  use_cache: true,
};
const qwen = {
  ...common,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  bos_token_id: 151643,
  eos_token_id: 151645,
  max_window_layers: 28,
};
/** For each model: the number of parameters on the hub, fields of its config.json on the hub, and expected fields of `parseConfig`'s result. */
const PUBLISHED: Readonly<
  Record<string, readonly [parameters: number, config: object, expected: Partial<ReturnType<typeof parseConfig>>]>
> = {
  'meta-llama/Llama-3.2-1B-Instruct': [1_235_814_400, llama, { kvHeads: 8, headDim: 64, contextLength: 131_072 }],
  'meta-llama/Llama-3.1-8B-Instruct': [
    8_030_261_248,
    {
      ...llama,
      ...common,
      hidden_size: 4096,
      intermediate_size: 14336,
      num_hidden_layers: 32,
      head_dim: undefined,
      rope_scaling: { ...llama.rope_scaling, factor: 8 },
    },
    { headDim: 128, tiedEmbeddings: false },
  ],
  'Qwen/Qwen2.5-0.5B-Instruct': [
    494_032_768,
    {
      ...qwen,
      model_type: 'qwen2',
      hidden_size: 896,
      intermediate_size: 4864,
      num_hidden_layers: 24,
      num_attention_heads: 14,
      num_key_value_heads: 2,
      vocab_size: 151936,
      max_position_embeddings: 32768,
      sliding_window: 32768,
      use_sliding_window: false,
      tie_word_embeddings: true,
    },
    { attentionBias: true, contextLength: 32_768, tiedEmbeddings: true },
  ],
  'Qwen/Qwen2.5-7B-Instruct': [
    7_615_616_512,
    {
      ...qwen,
      model_type: 'qwen2',
      hidden_size: 3584,
      intermediate_size: 18944,
      num_hidden_layers: 28,
      num_attention_heads: 28,
      num_key_value_heads: 4,
      vocab_size: 152064,
      max_position_embeddings: 32768,
      sliding_window: 131072,
      use_sliding_window: false,
    },
    { headDim: 128, contextLength: 32_768, tiedEmbeddings: false },
  ],
  'Qwen/Qwen3-0.6B': [
    596_049_920,
    {
      ...qwen,
      model_type: 'qwen3',
      attention_bias: false,
      head_dim: 128,
      hidden_size: 1024,
      intermediate_size: 3072,
      num_hidden_layers: 28,
      num_attention_heads: 16,
      num_key_value_heads: 8,
      vocab_size: 151936,
      max_position_embeddings: 40960,
      rope_scaling: null,
      sliding_window: null,
      use_sliding_window: false,
      tie_word_embeddings: true,
    },
    { queryKeyNorm: true, headDim: 128, contextLength: 40_960 },
  ],
  'mistralai/Mistral-7B-Instruct-v0.3': [
    7_248_023_552,
    {
      ...common,
      model_type: 'mistral',
      hidden_size: 4096,
      intermediate_size: 14336,
      num_hidden_layers: 32,
      num_attention_heads: 32,
      num_key_value_heads: 8,
      vocab_size: 32768,
      max_position_embeddings: 32768,
      rope_theta: 1_000_000,
      sliding_window: null,
      bos_token_id: 1,
      eos_token_id: 2,
    },
    { contextLength: 32_768, headDim: 128, eosTokenIds: [2] },
  ],
  'HuggingFaceTB/SmolLM2-135M-Instruct': [
    134_515_008,
    {
      ...common,
      model_type: 'llama',
      attention_bias: false,
      hidden_size: 576,
      intermediate_size: 1536,
      is_llama_config: true,
      max_position_embeddings: 8192,
      mlp_bias: false,
      num_attention_heads: 9,
      num_hidden_layers: 30,
      num_key_value_heads: 3,
      pad_token_id: 2,
      rope_interleaved: false,
      rope_scaling: null,
      rope_theta: 100_000,
      tie_word_embeddings: true,
      vocab_size: 49152,
      'transformers.js_config': { kv_cache_dtype: { q4f16: 'float16', fp16: 'float16' } },
      bos_token_id: 1,
      eos_token_id: 2,
    },
    { ropeTheta: 100_000, headDim: 64, tiedEmbeddings: true },
  ],
};

describe('published models', () => {
  for (const [name, [parameters, json, expected]] of Object.entries(PUBLISHED)) {
    it(`${name}: reads the config, which implies the published number of parameters`, () => {
      const config = parseConfig(json);
      for (const [key, value] of Object.entries(expected))
        assert.deepEqual(config[key as keyof typeof config], value, key);
      const total = expectedTensors(config).reduce((sum, [, shape]) => sum + shape.reduce((a, b) => a * b, 1), 0);
      assert.equal(total, parameters);
    });
  }
});

describe('defaultPages', () => {
  // A slot has 8 layers × 2 × 2 heads × 64 floats, so a page of 16 slots takes 128 KiB.
  const config = { layers: 8, kvHeads: 2, headDim: 64, contextLength: 32_768 } as ModelConfig;
  const GIB = 2 ** 30;

  it('hold a whole context and an eighth more', () => {
    assert.equal(defaultPages(config, 16, 24 * GIB), 2304);
    assert.equal(defaultPages(config, 32, 24 * GIB), 1152);
  });

  it('take at most a sixteenth of the memory, and are at least 1,024', () => {
    assert.equal(defaultPages(config, 16, 4 * GIB), 2048);
    assert.equal(defaultPages(config, 16, GIB), 1024);
    assert.equal(defaultPages({ ...config, contextLength: 256 }, 16, 24 * GIB), 1024);
  });
});
