import type { Family } from './family.ts';

/** OLMo 2 (Ai2, 2025): norms after the blocks, and on whole rows of queries and keys. */
export const OLMO: Family = {
  types: { olmo2: {} },
  traits: () => ({ norms: 'after', queryKeyNorm: true, queryKeyNormSpan: 'row' }),
  names: {
    modules: { 'self_attn.output_norm': 'post_attention_layernorm', 'mlp.output_norm': 'post_feedforward_layernorm' },
  },
  gguf: [{ architecture: 'olmo2', type: 'olmo2' }],
};
