import type { Family } from './family.ts';

const FUSED_MLP = ['mlp.gate_proj', 'mlp.up_proj'];

/** GLM-4, dense (Zhipu AI, 2025): norms around the blocks, half of each head rotated in neighbouring pairs. */
export const GLM: Family = {
  types: { glm4: { head_dim: 128, partial_rotary_factor: 0.5, attention_bias: false, rms_norm_eps: 1.5625e-7 } },
  traits: ({ attention_bias }) => ({
    norms: 'around',
    rotaryPairs: 'neighbours',
    attentionBias: attention_bias ?? false,
  }),
  names: {
    modules: {
      'self_attn.output_norm': 'post_self_attn_layernorm',
      'mlp.input_norm': 'post_attention_layernorm',
      'mlp.output_norm': 'post_mlp_layernorm',
    },
    fused: { 'mlp.gate_up_proj': FUSED_MLP },
  },
  gguf: [
    {
      architecture: 'glm4',
      type: 'glm4',
      names: { fused: { ffn_up: FUSED_MLP } },
    },
  ],
};
