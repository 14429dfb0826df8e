import type { Family } from './family.ts';

const FUSED_ATTENTION = ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'];
const FUSED_MLP = ['mlp.gate_proj', 'mlp.up_proj'];

/** Phi 3, 3.5 and 4, mini and 14B. */
export const PHI: Family = {
  types: { phi3: { original_max_position_embeddings: 4096 } },
  names: { fused: { 'self_attn.qkv_proj': FUSED_ATTENTION, 'mlp.gate_up_proj': FUSED_MLP } },
  gguf: [{ architecture: 'phi3', type: 'phi3', names: { fused: { attn_qkv: FUSED_ATTENTION, ffn_up: FUSED_MLP } } }],
};
