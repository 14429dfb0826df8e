import { z } from 'zod';
import type { MetadataValue } from '../convert/gguf/header.ts';
import { type Family, fieldsOf, type GgufForm, refuse, scale, windowsOf } from './family.ts';

const ACTIVATION = 'gelu_pytorch_tanh';
const GEMMA2 = {
  ...{ num_key_value_heads: 4, head_dim: 256, hidden_activation: ACTIVATION, query_pre_attn_scalar: 256 },
  ...{ sliding_window: 4096, attn_logit_softcapping: 50, final_logit_softcapping: 30, tie_word_embeddings: true },
  ...{ max_position_embeddings: 8192, rms_norm_eps: 1e-6 },
};
/** Every sixth layer of Gemma 3 sees the whole context. */
const GEMMA3_INTERVAL = 6;
const GEMMA3 = {
  ...GEMMA2,
  ...{ vocab_size: 262_208, hidden_size: 2304, intermediate_size: 9216, num_hidden_layers: 26, num_attention_heads: 8 },
  ...{ max_position_embeddings: 131_072, rope_theta: 1_000_000, rope_local_base_freq: 10_000 },
  ...{ attn_logit_softcapping: null, final_logit_softcapping: null, sliding_window_pattern: GEMMA3_INTERVAL },
};
/** Layers of the 27B models, of which llama.cpp's files do not state the scale of scores: it is that of heads as wide as `hidden / heads`. */
const LAYERS_OF_27B: Readonly<Record<string, number>> = { gemma2: 46, gemma3: 62 };

/** Gemma 2 and 3, text only (Gemma Team, 2024 and 2025). */
export const GEMMA: Family = {
  types: { gemma2: GEMMA2, gemma3_text: GEMMA3 },
  traits(file) {
    const isThird = file.model_type === 'gemma3_text';
    const fields = fieldsOf(file, {
      hidden_activation: z.string().nullish(),
      query_pre_attn_scalar: scale,
      attn_logit_softcapping: scale.nullish(),
      final_logit_softcapping: scale.nullish(),
      rope_local_base_freq: z.number().positive().nullish(),
      sliding_window_pattern: z.int().min(1).max(1024).nullish(),
      use_bidirectional_attention: z.boolean().nullish(),
    });
    if ((fields.hidden_activation ?? ACTIVATION) !== ACTIVATION)
      refuse('hidden_activation', `"${fields.hidden_activation}" is not supported`);
    if (fields.use_bidirectional_attention) refuse('use_bidirectional_attention', 'not supported');
    const interval = fields.sliding_window_pattern ?? GEMMA3_INTERVAL;
    const local = file.rope_parameters?.sliding_attention;
    return {
      ...{ activation: 'gelu', norms: 'around', normOffset: 1, queryKeyNorm: isThird },
      attentionScale: 1 / Math.sqrt(fields.query_pre_attn_scalar),
      embeddingScale: Math.sqrt(file.hidden_size),
      attentionSoftcap: fields.attn_logit_softcapping ?? null,
      logitSoftcap: fields.final_logit_softcapping ?? null,
      windows: windowsOf(file, file.sliding_window, (layer) =>
        isThird ? (layer + 1) % interval !== 0 : layer % 2 === 0,
      ),
      localRopeTheta: isThird ? (local?.rope_theta ?? fields.rope_local_base_freq ?? 10_000) : null,
    };
  },
  names: {
    modules: {
      'self_attn.output_norm': 'post_attention_layernorm',
      'mlp.input_norm': 'pre_feedforward_layernorm',
      'mlp.output_norm': 'post_feedforward_layernorm',
    },
  },
  gguf: [form('gemma2', 'gemma2'), form('gemma3', 'gemma3_text')],
};

function form(architecture: string, type: string): GgufForm {
  const scalar = (key: (name: string) => MetadataValue | undefined) =>
    key('block_count') === LAYERS_OF_27B[architecture]
      ? Number(key('embedding_length')) / Number(key('attention.head_count'))
      : key('attention.key_length');
  return {
    ...{ architecture, type, addsOneToNorms: true },
    config: (key) => ({
      query_pre_attn_scalar: scalar(key),
      sliding_window: key('attention.sliding_window'),
      attn_logit_softcapping: key('attn_logit_softcapping'),
      final_logit_softcapping: key('final_logit_softcapping'),
    }),
  };
}
