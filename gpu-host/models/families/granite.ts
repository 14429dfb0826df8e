import { type Family, fieldsOf, scale } from './family.ts';

/** Granite 3, dense (IBM, 2024): a Llama with scales of its own. */
export const GRANITE: Family = {
  types: { granite: { embedding_multiplier: 1, residual_multiplier: 1, attention_multiplier: 1, logits_scaling: 1 } },
  traits(file) {
    const fields = fieldsOf(file, {
      embedding_multiplier: scale,
      residual_multiplier: scale,
      attention_multiplier: scale,
      logits_scaling: scale,
    });
    return {
      ...(file.attention_bias ? { attentionBias: true, outputBias: true } : {}),
      embeddingScale: fields.embedding_multiplier,
      residualScale: fields.residual_multiplier,
      attentionScale: fields.attention_multiplier,
      logitScale: 1 / fields.logits_scaling,
    };
  },
  gguf: [
    {
      architecture: 'granite',
      type: 'granite',
      permuted: true,
      config: (key) => ({
        embedding_multiplier: key('embedding_scale'),
        residual_multiplier: key('residual_scale'),
        attention_multiplier: key('attention.scale'),
        logits_scaling: key('logit_scale'),
      }),
    },
  ],
};
