import { z } from 'zod';
import { issueText, ModelError } from '../errors.ts';

/** The `model_type` of models with a vision tower. */
export const LLAVA = 'llava';

const llavaSchema = z.looseObject({
  model_type: z.literal(LLAVA),
  text_config: z.looseObject({}),
  vision_config: z.looseObject({}),
  bos_token_id: z.unknown().optional(),
  eos_token_id: z.unknown().optional(),
  quantization_config: z.unknown().optional(),
});

/** Defaults of transformers for fields that a nested config leaves out; the first LLaVA leaves out most fields. */
const TEXT_DEFAULTS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  llama: {
    vocab_size: 32_000,
    hidden_size: 4096,
    intermediate_size: 11_008,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-6,
    bos_token_id: 1,
    eos_token_id: 2,
  },
  mistral: {
    vocab_size: 32_000,
    hidden_size: 4096,
    intermediate_size: 14_336,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    max_position_embeddings: 131_072,
    rms_norm_eps: 1e-6,
    bos_token_id: 1,
    eos_token_id: 2,
  },
};

/** True when a parsed `config.json` belongs to a model with a vision tower. */
function isLlava(json: unknown): boolean {
  return z.looseObject({ model_type: z.literal(LLAVA) }).safeParse(json).success;
}

/**
 * The text model's part of a `config.json`, completed with defaults, and the whole file; undefined for models of other types.
 *
 * @throws ModelError `malformed-config`
 */
export function splitLlava(
  json: unknown,
): { text: Record<string, unknown>; file: Record<string, unknown> } | undefined {
  if (!isLlava(json)) return undefined;
  const parsed = llavaSchema.safeParse(json);
  if (!parsed.success) throw new ModelError('malformed-config', `config.json: ${issueText(parsed.error)}`);
  const { text_config, bos_token_id, eos_token_id, quantization_config } = parsed.data;
  const type = typeof text_config.model_type === 'string' ? text_config.model_type : 'llama';
  const outerIds = Object.entries({ bos_token_id, eos_token_id }).filter(([, value]) => value != null);
  const text: Record<string, unknown> = {
    model_type: type,
    ...TEXT_DEFAULTS[type],
    ...Object.fromEntries(outerIds),
    ...text_config,
  };
  text.quantization_config ??= quantization_config;
  return { text, file: parsed.data };
}
