import { z } from 'zod';
import { ModelError } from './errors.ts';
import { LLAVA, splitLlava } from './vision/llava.ts';

/**
 * Parameters of a Llama-family model that a backend needs, read from a Hugging Face `config.json`.
 *
 * One shape for Llama 2 and 3, SmolLM2, Qwen2 and 3, Mistral and TinyLlama: a feature that a family lacks is off here, never undefined.
 */
export interface ModelConfig {
  /** `llama`, `mistral`, `qwen2` or `qwen3`: the `model_type` of the file. */
  readonly family: string;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Key and value heads; equal to `heads` without grouped-query attention. */
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabularySize: number;
  /** Most tokens of a context, from the model's training. */
  readonly contextLength: number;
  readonly ropeTheta: number;
  /** Llama 3 frequency scaling, or null. */
  readonly ropeScaling: Llama3RopeScaling | null;
  readonly rmsNormEpsilon: number;
  readonly tiedEmbeddings: boolean;
  /** Qwen2: biases on the q, k and v projections. */
  readonly attentionBias: boolean;
  /** Qwen3: RMS norms on each query and key head before the rotation. */
  readonly queryKeyNorm: boolean;
  readonly bosTokenId: number | null;
  readonly eosTokenIds: readonly number[];
}

/** `rope_scaling` of type `llama3`. */
export interface Llama3RopeScaling {
  readonly factor: number;
  readonly lowFrequencyFactor: number;
  readonly highFrequencyFactor: number;
  readonly originalContextLength: number;
}

/** Values of one key or value row of a slot: `kvHeads × headDim`. */
export function kvSize(config: ModelConfig): number {
  return config.kvHeads * config.headDim;
}

/** The `model_type`s that the backends implement. */
export const FAMILIES = ['llama', 'mistral', 'qwen2', 'qwen3'] as const;

// These bounds are far above any real model. They keep products of sizes exact, and keep a hostile file from claiming absurd memory.
const size = z
  .int()
  .min(1)
  .max(1 << 24);
const tokenId = z
  .int()
  .min(0)
  .max(1 << 24);

const ropeSchema = z.looseObject({
  rope_type: z.string().nullish(),
  type: z.string().nullish(),
  rope_theta: z.number().positive().nullish(),
  factor: z.number().positive().nullish(),
  low_freq_factor: z.number().positive().nullish(),
  high_freq_factor: z.number().positive().nullish(),
  original_max_position_embeddings: size.nullish(),
});

const configSchema = z.looseObject({
  model_type: z.string(),
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size.max(1024),
  num_attention_heads: size.max(4096),
  num_key_value_heads: size.max(4096).nullish(),
  head_dim: size.max(4096).nullish(),
  vocab_size: size,
  max_position_embeddings: size,
  rope_theta: z.number().positive().nullish(),
  rope_scaling: ropeSchema.nullish(),
  // transformers 5 gathers theta and scaling here.
  rope_parameters: ropeSchema.nullish(),
  rms_norm_eps: z.number().positive().max(1),
  tie_word_embeddings: z.boolean().nullish(),
  attention_bias: z.boolean().nullish(),
  mlp_bias: z.boolean().nullish(),
  hidden_act: z.string().nullish(),
  sliding_window: z.int().min(1).nullish(),
  use_sliding_window: z.boolean().nullish(),
  partial_rotary_factor: z.number().nullish(),
  rope_interleaved: z.boolean().nullish(),
  quantization_config: z.unknown().optional(),
  bos_token_id: tokenId.nullish(),
  eos_token_id: z.union([tokenId, z.array(tokenId).max(64)]).nullish(),
});

type ConfigFile = z.infer<typeof configSchema>;

/**
 * Reads the parsed JSON of a `config.json` (with a vision tower: the text model's part) and of an optional `generation_config.json`, which
 * may name more end tokens.
 * @throws ModelError `malformed-config` with the field, `unsupported-model` when the backends do not implement the model's computation.
 */
export function parseConfig(json: unknown, generation: unknown = {}): ModelConfig {
  const text = splitLlava(json)?.text ?? json;
  const family = familyOf(text);
  const parsed = configSchema.safeParse(text);
  if (!parsed.success) throw malformed('config.json', parsed.error);
  const file = parsed.data;
  refuseUnsupported(file);

  const heads = file.num_attention_heads;
  const kvHeads = file.num_key_value_heads ?? heads;
  const headDim = file.head_dim ?? file.hidden_size / heads;
  if (heads % kvHeads !== 0) {
    throw new ModelError('malformed-config', `config.json: ${heads} heads cannot share ${kvHeads} key and value heads`);
  }
  if (!Number.isInteger(headDim) || headDim % 2 !== 0) {
    throw new ModelError('malformed-config', `config.json: a head of ${headDim} values cannot be rotated in pairs`);
  }
  const rope = file.rope_parameters ?? file.rope_scaling ?? {};
  return {
    family,
    hiddenSize: file.hidden_size,
    intermediateSize: file.intermediate_size,
    layers: file.num_hidden_layers,
    heads,
    kvHeads,
    headDim,
    vocabularySize: file.vocab_size,
    contextLength: contextLengthOf(file),
    ropeTheta: file.rope_theta ?? rope.rope_theta ?? 10_000,
    ropeScaling: ropeScalingOf(rope),
    rmsNormEpsilon: file.rms_norm_eps,
    tiedEmbeddings: file.tie_word_embeddings ?? false,
    attentionBias: family === 'qwen2',
    queryKeyNorm: family === 'qwen3',
    bosTokenId: file.bos_token_id ?? null,
    eosTokenIds: endTokens(file, generation),
  };
}

/** The `config.json` that {@link parseConfig} reads back as `config`; converters and test models write this file. */
export function configToJson(config: ModelConfig): Record<string, unknown> {
  const architecture = { llama: 'Llama', mistral: 'Mistral', qwen2: 'Qwen2', qwen3: 'Qwen3' }[config.family] ?? 'Llama';
  const scaling = config.ropeScaling;
  return {
    architectures: [`${architecture}ForCausalLM`],
    model_type: config.family,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.layers,
    num_attention_heads: config.heads,
    num_key_value_heads: config.kvHeads,
    head_dim: config.headDim,
    vocab_size: config.vocabularySize,
    max_position_embeddings: config.contextLength,
    rope_theta: config.ropeTheta,
    rope_scaling: scaling && {
      rope_type: 'llama3',
      factor: scaling.factor,
      low_freq_factor: scaling.lowFrequencyFactor,
      high_freq_factor: scaling.highFrequencyFactor,
      original_max_position_embeddings: scaling.originalContextLength,
    },
    rms_norm_eps: config.rmsNormEpsilon,
    tie_word_embeddings: config.tiedEmbeddings,
    hidden_act: 'silu',
    bos_token_id: config.bosTokenId,
    eos_token_id: config.eosTokenIds.length === 1 ? config.eosTokenIds[0] : config.eosTokenIds,
  };
}

function familyOf(json: unknown): string {
  const type = z.looseObject({ model_type: z.string() }).safeParse(json);
  if (!type.success) throw malformed('config.json', type.error);
  const family = type.data.model_type;
  if (!(FAMILIES as readonly string[]).includes(family)) {
    throw new ModelError('unsupported-model', `models of type "${family}" are not supported`, {
      hint: `supported model types: ${FAMILIES.join(', ')}, and ${LLAVA} over one of them`,
    });
  }
  return family;
}

function refuseUnsupported(file: ConfigFile): void {
  const refuse = (what: string, hint?: string) => {
    throw new ModelError('unsupported-model', `config.json: ${what}`, hint === undefined ? {} : { hint });
  };
  if (file.quantization_config !== undefined && file.quantization_config !== null) {
    refuse(
      'the weights are quantised',
      'use the checkpoint with bf16, fp16 or fp32 weights; Pie quantises by its own option',
    );
  }
  // With `attention_bias`, Llama and Qwen3 put a bias on the output projection, too; Qwen2 always has q, k and v biases only.
  if (file.attention_bias && file.model_type !== 'qwen2') refuse('attention_bias is not supported for this model type');
  if (file.mlp_bias) refuse('mlp_bias is not supported');
  if ((file.partial_rotary_factor ?? 1) !== 1) refuse('partial_rotary_factor is not supported');
  if (file.rope_interleaved) refuse('rope_interleaved is not supported');
  if (file.hidden_act && file.hidden_act !== 'silu' && file.hidden_act !== 'swish') {
    refuse(`activation "${file.hidden_act}" is not supported`);
  }
}

/** Full attention gives the same results inside the sliding window, so the window bounds the context instead of changing the mask. */
function contextLengthOf(file: ConfigFile): number {
  const sliding = file.use_sliding_window ?? file.model_type === 'mistral';
  const window = sliding ? (file.sliding_window ?? file.max_position_embeddings) : file.max_position_embeddings;
  return Math.min(window, file.max_position_embeddings);
}

function ropeScalingOf(rope: z.infer<typeof ropeSchema>): Llama3RopeScaling | null {
  const type = rope.rope_type ?? rope.type ?? 'default';
  if (type === 'default') return null;
  if (type !== 'llama3') {
    throw new ModelError('unsupported-model', `config.json: rope scaling "${type}" is not supported`, {
      hint: 'supported: none and llama3',
    });
  }
  const { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } = rope;
  if (!factor || !low_freq_factor || !high_freq_factor || !original_max_position_embeddings) {
    throw new ModelError('malformed-config', 'config.json: rope scaling "llama3" lacks one of its four parameters');
  }
  return {
    factor,
    lowFrequencyFactor: low_freq_factor,
    highFrequencyFactor: high_freq_factor,
    originalContextLength: original_max_position_embeddings,
  };
}

function endTokens(file: ConfigFile, generation: unknown): number[] {
  const extra = z.looseObject({ eos_token_id: configSchema.shape.eos_token_id }).safeParse(generation);
  const ids = [file.eos_token_id ?? [], (extra.success ? extra.data.eos_token_id : null) ?? []].flat();
  return [...new Set(ids)].filter((id) => id < file.vocab_size);
}

function malformed(what: string, error: z.ZodError): ModelError {
  const issue = error.issues[0];
  const field = issue?.path.join('.') ?? '';
  return new ModelError(
    'malformed-config',
    `${what}: ${field === '' ? '' : `"${field}": `}${issue?.message ?? 'invalid'}`,
  );
}
