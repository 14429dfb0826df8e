import { z } from 'zod';
import { ModelError } from '../errors.ts';
import { type Family, fieldsOf, windowsOf } from './family.ts';

const count = z.int().min(1).max(4096);
/** OpenAI's models scale their positions in one way. */
const YARN = { rope_type: 'yarn', factor: 32, beta_fast: 32, beta_slow: 1, original_max_position_embeddings: 4096 };

/** gpt-oss 20B and 120B (OpenAI, 2025): experts in every layer, learned sinks, a window in every second layer. */
export const GPT_OSS: Family = {
  types: {
    gpt_oss: {
      ...{ num_key_value_heads: 8, head_dim: 64, num_local_experts: 128, num_experts_per_tok: 4, attention_bias: true },
      ...{ sliding_window: 128, rope_theta: 150_000, rms_norm_eps: 1e-5, max_position_embeddings: 131_072 },
      ...{ rope_scaling: { ...YARN, truncate: false }, swiglu_limit: 7 },
    },
  },
  traits(file) {
    const {
      num_local_experts: total,
      num_experts_per_tok: used,
      swiglu_limit: limit,
    } = fieldsOf(file, {
      num_local_experts: count,
      num_experts_per_tok: count,
      swiglu_limit: z.number().positive().max(1e6),
    });
    if (used > total)
      throw new ModelError('malformed-config', `config.json: "num_experts_per_tok": ${used} of ${total} experts`);
    return {
      ...{ attentionBias: true, outputBias: true, sinks: true, activation: 'clamped', activationLimit: limit },
      windows: windowsOf(file, file.sliding_window, (layer) => layer % 2 === 0),
      experts: { count: total, used, size: file.intermediate_size, router: 'chosen', biases: true },
    };
  },
  gguf: [
    {
      architecture: 'gpt-oss',
      type: 'gpt_oss',
      config: (key) => ({
        num_local_experts: key('expert_count'),
        num_experts_per_tok: key('expert_used_count'),
        intermediate_size: key('expert_feed_forward_length'),
        sliding_window: key('attention.sliding_window'),
        attention_bias: true,
      }),
      names: { modules: { post_attention_layernorm: 'post_attention_norm' } },
    },
  ],
};
