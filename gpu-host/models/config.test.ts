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

const LLAMA3 = {
  type: 'llama3',
  factor: 32,
  lowFrequencyFactor: 1,
  highFrequencyFactor: 4,
  originalContextLength: 8192,
} as const;

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
    assert.equal(config.ropeScaling?.type === 'llama3' && config.ropeScaling.factor, 32);
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
const YARN = {
  type: 'yarn',
  ...{ factor: 4, betaFast: 32, betaSlow: 1, originalContextLength: 32768, truncates: true },
  attentionFactor: 0.1 * Math.log(4) + 1,
} as const;
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
  [{ partial_rotary_factor: 0.5 }, { rotaryDim: 32 }],
  [{ partial_rotary_factor: 0.01 }, /"partial_rotary_factor"/],
  [{ partial_rotary_factor: 2 }, /"partial_rotary_factor"/],
  [{ rope_interleaved: false }, {}],
  [{ rope_interleaved: true }, /"rope_interleaved"/],
  [{ architectures: ['AnyForCausalLM'], pretraining_tp: 2, attention_dropout: 0.1, use_cache: false }, {}],
  [{ architectures: ['AnyForSequenceClassification'] }, /"architectures".*SequenceClassification/],
  [withRopeScaling({ rope_type: 'default' }), { ropeScaling: null }],
  [withRopeScaling({ type: 'linear', factor: 4 }), { ropeScaling: { type: 'linear', factor: 4 } }],
  [withRopeScaling({ rope_type: 'linear' }), /"rope_scaling".*factor/],
  [withRopeScaling({ type: 'dynamic', factor: 2 }), { ropeScaling: null, contextLength: CONTEXT }],
  [withRopeScaling({ ...llama.rope_scaling, factor: 8 }), { ropeScaling: { ...LLAMA3, factor: 8 } }],
  [withRopeScaling({ rope_type: 'llama3', factor: 8 }), /"rope_scaling".*four parameters/],
  [withRopeScaling({ type: 'yarn', factor: 4, original_max_position_embeddings: 32768 }), { ropeScaling: YARN }],
  [withRopeScaling({ type: 'yarn', factor: 4, mscale: 1, mscale_all_dim: 1 }), /"rope_scaling".*mscale/],
  [withRopeScaling({ rope_type: 'ntk' }), /"rope_scaling".*ntk/],
  [withRopeScaling({ rope_type: 'longrope', short_factor: [1] }), /"rope_scaling".*longrope/],
  [
    { rope_parameters: { rope_type: 'linear', factor: 2, rope_theta: 7 } },
    { ropeScaling: { type: 'linear', factor: 2 } },
  ],
  [{ rope_parameters: { rope_type: 'ntk', factor: 4 } }, /"rope_parameters".*ntk/],
  [{ rope_parameters: { rope_type: 'default', partial_rotary_factor: 0.5 } }, { rotaryDim: 32 }],
  [
    { rope_parameters: { full_attention: { rope_type: 'linear', factor: 2 } } },
    { ropeScaling: { type: 'linear', factor: 2 } },
  ],
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
    [{ attention_bias: true }, { attentionBias: true, outputBias: true }],
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
    [{ attention_bias: true }, { attentionBias: true, outputBias: true }],
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
const gemma = { rms_norm_eps: 1e-6, rope_theta: 10_000, hidden_activation: 'gelu_pytorch_tanh', bos_token_id: 2 };
const phi = {
  model_type: 'phi3',
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  hidden_act: 'silu',
  tie_word_embeddings: false,
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
  'google/gemma-2-2b-it': [
    2_614_341_888,
    {
      ...{ ...gemma, model_type: 'gemma2', hidden_size: 2304, intermediate_size: 9216, num_hidden_layers: 26 },
      ...{ num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256, vocab_size: 256_000, sliding_window: 4096 },
      ...{ max_position_embeddings: 8192, query_pre_attn_scalar: 256, attn_logit_softcapping: 50 },
      final_logit_softcapping: 30,
    },
    {
      norms: 'around',
      normOffset: 1,
      attentionSoftcap: 50,
      logitSoftcap: 30,
      embeddingScale: 48,
      tiedEmbeddings: true,
    },
  ],
  'google/gemma-3-1b-it': [
    999_885_952,
    {
      ...{ ...gemma, model_type: 'gemma3_text', hidden_size: 1152, intermediate_size: 6912, num_hidden_layers: 26 },
      ...{ num_attention_heads: 4, num_key_value_heads: 1, head_dim: 256, vocab_size: 262_144, sliding_window: 512 },
      ...{ max_position_embeddings: 32_768, query_pre_attn_scalar: 256, sliding_window_pattern: 6 },
      ...{ rope_theta: 1_000_000, rope_local_base_freq: 10_000 },
    },
    { queryKeyNorm: true, localRopeTheta: 10_000, contextLength: 32_768, attentionSoftcap: null },
  ],
  // The text model inside a model of text and images; what its file leaves out is transformers' default.
  'google/gemma-3-4b-it': [
    3_880_263_168,
    {
      model_type: 'gemma3',
      architectures: ['Gemma3ForConditionalGeneration'],
      text_config: {
        ...{ model_type: 'gemma3_text', hidden_size: 2560, intermediate_size: 10_240, num_hidden_layers: 34 },
        ...{ sliding_window: 1024, rope_scaling: { factor: 8, rope_type: 'linear' } },
      },
      vision_config: { model_type: 'siglip_vision_model' },
    },
    { family: 'gemma3_text', contextLength: 131_072, ropeScaling: { type: 'linear', factor: 8 } },
  ],
  'microsoft/Phi-4-mini-instruct': [
    3_836_021_760,
    {
      ...{ ...phi, hidden_size: 3072, intermediate_size: 8192, num_hidden_layers: 32, num_attention_heads: 24 },
      ...{ num_key_value_heads: 8, vocab_size: 200_064, max_position_embeddings: 131_072, sliding_window: 262_144 },
      ...{ original_max_position_embeddings: 4096, partial_rotary_factor: 0.75, tie_word_embeddings: true },
      rope_scaling: { type: 'longrope', short_factor: Array(48).fill(1), long_factor: Array(48).fill(2) },
    },
    { rotaryDim: 96, headDim: 128, contextLength: 131_072 },
  ],
  'microsoft/phi-4': [
    14_659_507_200,
    {
      ...{ ...phi, hidden_size: 5120, intermediate_size: 17_920, num_hidden_layers: 40, num_attention_heads: 40 },
      ...{ num_key_value_heads: 10, vocab_size: 100_352, max_position_embeddings: 16_384, sliding_window: null },
      ...{ original_max_position_embeddings: 16_384, rope_theta: 250_000, rope_scaling: null },
    },
    { contextLength: 16_384, ropeTheta: 250_000, ropeScaling: null },
  ],
  'openai/gpt-oss-20b': [
    20_914_757_184,
    {
      ...{ model_type: 'gpt_oss', hidden_size: 2880, intermediate_size: 2880, num_hidden_layers: 24 },
      ...{ num_attention_heads: 64, num_key_value_heads: 8, head_dim: 64, vocab_size: 201_088, sliding_window: 128 },
      ...{ max_position_embeddings: 131_072, rms_norm_eps: 1e-5, rope_theta: 150_000, num_local_experts: 32 },
      ...{ num_experts_per_tok: 4, attention_bias: true, swiglu_limit: 7, tie_word_embeddings: false },
      rope_scaling: {
        ...{ beta_fast: 32, beta_slow: 1, factor: 32, original_max_position_embeddings: 4096 },
        ...{ rope_type: 'yarn', truncate: false },
      },
    },
    {
      ...{ sinks: true, activation: 'clamped', attentionBias: true, outputBias: true },
      experts: { count: 32, used: 4, size: 2880, router: 'chosen', biases: true },
    },
  ],
  'Qwen/Qwen3-30B-A3B': [
    30_532_122_624,
    {
      ...{ ...qwen, model_type: 'qwen3_moe', hidden_size: 2048, intermediate_size: 6144, num_hidden_layers: 48 },
      ...{ num_attention_heads: 32, num_key_value_heads: 4, head_dim: 128, vocab_size: 151_936, num_experts: 128 },
      ...{ max_position_embeddings: 40_960, num_experts_per_tok: 8, moe_intermediate_size: 768, norm_topk_prob: true },
      ...{ decoder_sparse_step: 1, mlp_only_layers: [], use_sliding_window: false, tie_word_embeddings: false },
    },
    { experts: { count: 128, used: 8, size: 768, router: 'chosen', biases: false }, queryKeyNorm: true },
  ],
  'HuggingFaceTB/SmolLM3-3B': [
    3_075_098_624,
    {
      ...{ model_type: 'smollm3', hidden_size: 2048, intermediate_size: 11_008, num_hidden_layers: 36 },
      ...{ num_attention_heads: 16, num_key_value_heads: 4, vocab_size: 128_256, max_position_embeddings: 65_536 },
      ...{ rms_norm_eps: 1e-6, rope_theta: 5_000_000, no_rope_layer_interval: 4, attention_bias: false },
      ...{ layer_types: Array(36).fill('full_attention'), use_sliding_window: false, sliding_window: null },
      no_rope_layers: Array.from({ length: 36 }, (_, layer) => ((layer + 1) % 4 === 0 ? 0 : 1)),
    },
    { unrotatedLayers: [3, 7, 11, 15, 19, 23, 27, 31, 35], tiedEmbeddings: true },
  ],
  'allenai/OLMo-2-0425-1B': [
    1_484_916_736,
    {
      ...{ model_type: 'olmo2', hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 16 },
      ...{ num_attention_heads: 16, num_key_value_heads: 16, vocab_size: 100_352, max_position_embeddings: 4096 },
      ...{ rms_norm_eps: 1e-6, rope_theta: 500_000, rope_scaling: null, attention_bias: false },
    },
    { norms: 'after', queryKeyNorm: true, queryKeyNormSpan: 'row' },
  ],
  'ibm-granite/granite-3.3-2b-instruct': [
    2_533_539_840,
    {
      ...{ model_type: 'granite', hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 40 },
      ...{ num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 49_159, max_position_embeddings: 131_072 },
      ...{ rms_norm_eps: 1e-5, rope_theta: 10_000_000, embedding_multiplier: 12, residual_multiplier: 0.22 },
      ...{ attention_multiplier: 0.015625, logits_scaling: 8, attention_bias: false, tie_word_embeddings: true },
    },
    { embeddingScale: 12, residualScale: 0.22, attentionScale: 0.015625, logitScale: 0.125 },
  ],
  'zai-org/GLM-4-9B-0414': [
    9_400_279_040,
    {
      ...{ model_type: 'glm4', hidden_size: 4096, intermediate_size: 13_696, num_hidden_layers: 40 },
      ...{ num_attention_heads: 32, num_key_value_heads: 2, head_dim: 128, vocab_size: 151_552 },
      ...{ max_position_embeddings: 32_768, rms_norm_eps: 1e-5, partial_rotary_factor: 0.5, attention_bias: true },
    },
    { norms: 'around', rotaryDim: 64, rotaryPairs: 'neighbours', attentionBias: true, outputBias: false },
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
