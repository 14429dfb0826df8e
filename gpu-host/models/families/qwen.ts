import { z } from 'zod';
import { ModelError } from '../errors.ts';
import { type Family, fieldsOf, refuse } from './family.ts';

const COMMON = { num_key_value_heads: 32, sliding_window: 4096, max_window_layers: 28 };
const count = z.int().min(1).max(4096);

/** Qwen 2 and 2.5, Qwen 3, and Qwen 3's mixtures of experts. */
export const QWEN: Family = {
  types: {
    qwen2: COMMON,
    qwen3: { ...COMMON, head_dim: 128 },
    qwen3_moe: {
      ...{ ...COMMON, num_key_value_heads: 4, intermediate_size: 6144, num_experts: 128, num_experts_per_tok: 8 },
      ...{ moe_intermediate_size: 768, norm_topk_prob: false, decoder_sparse_step: 1, mlp_only_layers: [] },
    },
  },
  traits(file) {
    if (file.model_type === 'qwen2') return { attentionBias: true };
    const traits = {
      queryKeyNorm: true,
      attentionBias: file.attention_bias ?? false,
      outputBias: file.attention_bias ?? false,
    };
    if (file.model_type === 'qwen3') return traits;
    const fields = fieldsOf(file, {
      num_experts: count,
      num_experts_per_tok: count,
      moe_intermediate_size: z
        .int()
        .min(1)
        .max(1 << 24),
      norm_topk_prob: z.boolean().nullish(),
      decoder_sparse_step: z.int().nullish(),
      mlp_only_layers: z.array(z.int()).nullish(),
    });
    if (fields.decoder_sparse_step !== 1) refuse('decoder_sparse_step', 'layers without experts are not supported');
    if (fields.mlp_only_layers?.length) refuse('mlp_only_layers', 'layers without experts are not supported');
    const { num_experts: total, num_experts_per_tok: used } = fields;
    if (used > total)
      throw new ModelError('malformed-config', `config.json: "num_experts_per_tok": ${used} of ${total} experts`);
    return {
      ...traits,
      experts: {
        ...{ count: total, used, size: fields.moe_intermediate_size, biases: false },
        router: fields.norm_topk_prob ? 'chosen' : 'all',
      },
    };
  },
  names: { modules: { 'mlp.router': 'mlp.gate' } },
  gguf: [
    { architecture: 'qwen2', type: 'qwen2' },
    { architecture: 'qwen3', type: 'qwen3' },
    {
      architecture: 'qwen3moe',
      type: 'qwen3_moe',
      config: (key) => ({
        num_experts: key('expert_count'),
        num_experts_per_tok: key('expert_used_count'),
        moe_intermediate_size: key('expert_feed_forward_length'),
        norm_topk_prob: true,
      }),
    },
  ],
};
