import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { configToJson, parseConfig } from './config.ts';
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

function refused(json: object, code: string, words: RegExp): void {
  assert.throws(
    () => parseConfig(json),
    (error) => error instanceof ModelError && error.code === code && words.test(error.message),
  );
}

describe('parseConfig', () => {
  it('reads Llama 3.2, with the end tokens of generation_config.json too', () => {
    const config = parseConfig(llama, { eos_token_id: [128001, 128009] });
    assert.deepEqual(config.ropeScaling, {
      factor: 32,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalContextLength: 8192,
    });
    assert.deepEqual(config.eosTokenIds, [128001, 128008, 128009]);
    assert.equal(config.tiedEmbeddings, true);
    assert.equal(config.kvHeads, 8);
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

  it('knows what a family brings', () => {
    const qwen2 = parseConfig({
      ...llama,
      model_type: 'qwen2',
      rope_scaling: null,
      sliding_window: 4096,
      use_sliding_window: false,
    });
    assert.deepEqual([qwen2.attentionBias, qwen2.queryKeyNorm, qwen2.contextLength], [true, false, 131072]);
    const qwen3 = parseConfig({ ...llama, model_type: 'qwen3', rope_scaling: null });
    assert.deepEqual([qwen3.attentionBias, qwen3.queryKeyNorm], [false, true]);
    const mistral = parseConfig({ ...llama, model_type: 'mistral', rope_scaling: null, sliding_window: 4096 });
    assert.equal(mistral.contextLength, 4096, 'inside the window full attention is the same');
  });

  it('reads the rope_parameters of transformers 5', () => {
    const { rope_theta, rope_scaling, ...rest } = llama;
    const config = parseConfig({ ...rest, rope_parameters: { ...rope_scaling, rope_theta } });
    assert.equal(config.ropeTheta, 500_000);
    assert.equal(config.ropeScaling?.factor, 32);
  });

  it('comes back from configToJson', () => {
    for (const model_type of ['llama', 'mistral', 'qwen2', 'qwen3']) {
      const config = parseConfig({ ...llama, model_type });
      assert.deepEqual(parseConfig(configToJson(config)), config);
    }
  });

  it('refuses what the backends would compute wrongly', () => {
    refused({ ...llama, model_type: 'gemma2' }, 'unsupported-model', /gemma2/);
    refused({ ...llama, quantization_config: { quant_method: 'gptq' } }, 'unsupported-model', /quantised/);
    refused({ ...llama, attention_bias: true }, 'unsupported-model', /attention_bias/);
    refused({ ...llama, mlp_bias: true }, 'unsupported-model', /mlp_bias/);
    refused({ ...llama, hidden_act: 'gelu' }, 'unsupported-model', /gelu/);
    refused({ ...llama, partial_rotary_factor: 0.5 }, 'unsupported-model', /partial_rotary_factor/);
    refused({ ...llama, rope_interleaved: true }, 'unsupported-model', /rope_interleaved/);
    refused({ ...llama, rope_scaling: { type: 'yarn', factor: 4 } }, 'unsupported-model', /yarn/);
    refused({ ...llama, rope_scaling: { type: 'llama3', factor: 4 } }, 'malformed-config', /four parameters/);
  });

  it('names the field that is wrong', () => {
    refused({ ...llama, hidden_size: '2048' }, 'malformed-config', /hidden_size/);
    refused({ ...llama, num_hidden_layers: 1e9 }, 'malformed-config', /num_hidden_layers/);
    refused({ ...llama, rms_norm_eps: undefined }, 'malformed-config', /rms_norm_eps/);
    refused({ ...llama, num_key_value_heads: 5 }, 'malformed-config', /5 key and value heads/);
    refused({ ...llama, head_dim: 63 }, 'malformed-config', /63/);
    refused([], 'malformed-config', /config.json/);
    refused({}, 'malformed-config', /model_type/);
  });
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
/** Fields of config.json as the hub has them, with the number of parameters that the hub reports of the weights. */
const PUBLISHED: Readonly<
  Record<string, readonly [parameters: number, config: object, text: Partial<ReturnType<typeof parseConfig>>]>
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
    it(name, () => {
      const config = parseConfig(json);
      for (const [key, value] of Object.entries(expected))
        assert.deepEqual(config[key as keyof typeof config], value, key);
      const total = expectedTensors(config).reduce((sum, [, shape]) => sum + shape.reduce((a, b) => a * b, 1), 0);
      assert.equal(total, parameters);
    });
  }
});
