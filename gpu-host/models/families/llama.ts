import type { Family } from './family.ts';

/** Llama 2 and 3, TinyLlama, SmolLM 2, DeepSeek's R1 distills of Llama; Mistral, Nemo and Small 3. */
export const LLAMA: Family = {
  types: { llama: {}, mistral: { num_key_value_heads: 8, sliding_window: 4096 } },
  traits: ({ model_type, attention_bias }) =>
    attention_bias && model_type === 'llama' ? { attentionBias: true, outputBias: true } : {},
  gguf: [{ architecture: 'llama', type: 'llama', permuted: true }],
};
