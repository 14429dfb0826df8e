import { z } from 'zod';
import { parseConfig } from '../../config.ts';
import { ModelError } from '../../errors.ts';
import type { GgufForm } from '../../families/family.ts';
import { ARCHITECTURES, ggufForm } from '../../families/index.ts';
import type { GgufHeader, GgufTensor, MetadataValue } from './header.ts';

/**
 * Parameters of frequency scaling that Llama 3.1 to 3.3 share; only the factor differs between these models. A GGUF file has none of the
 * parameters, but the divisors that result from them.
 */
const LLAMA3 = { lowFrequencyFactor: 1, highFrequencyFactor: 4, originalContextLength: 8192 } as const;
/** Maximum relative difference between a divisor of the file and the divisor by Llama 3's formula. */
const DIVISOR_TOLERANCE = 1e-4;

const size = z.int().min(1);
/** Metadata keys without their prefix, the architecture's name (`llama.block_count`). `parseConfig` bounds the sizes. */
const architectureSchema = z.object({
  block_count: size,
  embedding_length: size,
  feed_forward_length: size.optional(),
  context_length: size,
  'attention.head_count': size,
  'attention.head_count_kv': size.optional(),
  'attention.key_length': size.optional(),
  'attention.value_length': size.optional(),
  'attention.layer_norm_rms_epsilon': z.number().positive(),
  'attention.sliding_window': z.int().min(0).optional(),
  'rope.dimension_count': size.optional(),
  'rope.freq_base': z.number().positive().optional(),
  'rope.scaling.type': z.string().default('linear'),
  'rope.scaling.factor': z.number().positive().optional(),
  'rope.scaling.original_context_length': size.optional(),
  'rope.scaling.attn_factor': z.number().positive().optional(),
  'rope.scaling.yarn_beta_fast': z.number().positive().optional(),
  'rope.scaling.yarn_beta_slow': z.number().positive().optional(),
  'rope.scaling.yarn_log_multiplier': z.number().optional(),
  // An earlier key for the factor of linear scaling.
  'rope.scale_linear': z.number().positive().optional(),
  expert_count: z.int().min(0).default(0),
  expert_feed_forward_length: size.optional(),
});

/** Tensors of numbers by which llama.cpp divides the rotation's frequencies: Llama 3's, and those of longrope. */
const [LLAMA3_DIVISORS, SHORT_DIVISORS, LONG_DIVISORS] = ['rope_freqs', 'rope_factors_short', 'rope_factors_long'].map(
  (name) => `${name}.weight`,
) as [string, string, string];
export const DIVISORS: readonly string[] = [LLAMA3_DIVISORS, SHORT_DIVISORS, LONG_DIVISORS];

/** A file's form, and the `config.json` that it implies. */
export interface GgufConfig {
  readonly form: GgufForm;
  readonly json: Record<string, unknown>;
}

/**
 * The configuration that a GGUF file states, in the words of Hugging Face.
 *
 * @param divisors reads one of {@link DIVISORS}; null when the file lacks it
 * @throws ModelError `malformed-config` with the key, or `unsupported-model`
 */
export function ggufConfig(
  { metadata, tensors }: GgufHeader,
  divisors: (name: string) => Float32Array | null,
  special: { readonly bos: number | null; readonly eos: readonly number[] },
): GgufConfig {
  const architecture = metadata.get('general.architecture');
  const form = ggufForm(architecture);
  if (form === undefined) {
    throw new ModelError(
      'unsupported-model',
      architecture === undefined
        ? 'the GGUF file does not state its architecture (general.architecture)'
        : `GGUF models of architecture "${String(architecture)}" are not supported`,
      {
        hint: `supported: ${ARCHITECTURES.join(', ')}`,
      },
    );
  }
  const keys = readKeys(form.architecture, metadata);
  const heads = keys['attention.head_count'];
  const headDim = keys['attention.key_length'] ?? keys.embedding_length / heads;
  const valueSize = keys['attention.value_length'] ?? headDim;
  const rotatedSize = keys['rope.dimension_count'] ?? headDim;
  if (valueSize !== headDim) throw unsupported('heads whose values have another size than their keys');
  if (form.permuted && rotatedSize !== headDim) throw unsupported('heads of which only a part is rotated');
  const ropeTheta = keys['rope.freq_base'] ?? 10_000;
  const window = keys['attention.sliding_window'] ?? 0;
  const ownKeys = (name: string) => {
    const value = metadata.get(`${form.architecture}.${name}`);
    return typeof value === 'number' && !Number.isInteger(value) ? shortest(value) : value;
  };
  const json = {
    model_type: form.type,
    hidden_size: keys.embedding_length,
    intermediate_size: keys.feed_forward_length ?? keys.expert_feed_forward_length,
    num_hidden_layers: keys.block_count,
    num_attention_heads: heads,
    num_key_value_heads: keys['attention.head_count_kv'] ?? heads,
    head_dim: headDim,
    vocab_size: vocabularySize(tensors),
    max_position_embeddings: keys.context_length,
    // A `max_window_layers` of 0 gives every layer the window; `parseConfig` then bounds the context by the window.
    ...(window > 0 && { use_sliding_window: true, sliding_window: window, max_window_layers: 0 }),
    ...(rotatedSize !== headDim && { partial_rotary_factor: rotatedSize / headDim }),
    rope_theta: ropeTheta,
    rope_scaling: scalingOf(keys, ropeTheta, headDim, divisors),
    ...(keys['rope.scaling.original_context_length'] !== undefined && {
      original_max_position_embeddings: keys['rope.scaling.original_context_length'],
    }),
    rms_norm_eps: shortest(keys['attention.layer_norm_rms_epsilon']),
    ...(tensors.has('blk.0.attn_q.bias') && { attention_bias: true }),
    tie_word_embeddings: !tensors.has('output.weight'),
    bos_token_id: special.bos,
    eos_token_id: special.eos,
    ...form.config?.(ownKeys),
  };
  const { experts } = parseConfig(json);
  if (keys.expert_count > 0 && experts === null) throw unsupported(`a mixture of ${keys.expert_count} experts`);
  return { form, json };
}

type ArchitectureKeys = z.infer<typeof architectureSchema>;

function readKeys(architecture: string, metadata: ReadonlyMap<string, MetadataValue>): ArchitectureKeys {
  const parsed = architectureSchema.safeParse(
    Object.fromEntries(
      Object.keys(architectureSchema.shape).map((key) => [key, metadata.get(`${architecture}.${key}`)]),
    ),
  );
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new ModelError(
    'malformed-config',
    `the GGUF file's "${architecture}.${issue?.path.join('.')}": ${issue?.message}`,
  );
}

function vocabularySize(tensors: ReadonlyMap<string, GgufTensor>): number | undefined {
  return tensors.get('token_embd.weight')?.shape[0];
}

/** The `rope_scaling` that a file implies by its keys or by its divisors. */
function scalingOf(
  keys: ArchitectureKeys,
  theta: number,
  headDim: number,
  divisors: (name: string) => Float32Array | null,
): Record<string, unknown> | null {
  const ofKeys = keyScaling(keys);
  const [short, long, llama3] = [SHORT_DIVISORS, LONG_DIVISORS, LLAMA3_DIVISORS].map(divisors);
  if (short && long) {
    const list = (values: Float32Array) => Array.from(values, shortest);
    const attention = keys['rope.scaling.attn_factor'];
    return {
      ...{ rope_type: 'longrope', short_factor: list(short), long_factor: list(long) },
      ...(attention !== undefined && { attention_factor: shortest(attention) }),
    };
  }
  if (!llama3) return ofKeys;
  const ofDivisors = llama3Scaling(llama3, theta, headDim);
  if (ofKeys !== null && ofDivisors !== null) throw unsupported('two scalings of its positions');
  return ofDivisors ?? ofKeys;
}

/** As llama.cpp does, assumes linear scaling when the file states a factor without a type. */
function keyScaling(keys: ArchitectureKeys): Record<string, unknown> | null {
  const type = keys['rope.scaling.type'];
  const factor = keys['rope.scaling.factor'] ?? keys['rope.scale_linear'] ?? 1;
  // The file has longrope's divisors as tensors.
  if (type === 'none' || type === 'longrope') return null;
  if (type === 'linear') return factor === 1 ? null : { rope_type: 'linear', factor };
  if (type === 'yarn' && factor === 1) return null;
  if (type !== 'yarn' || keys['rope.scaling.yarn_log_multiplier']) throw unsupported(`rope scaling "${type}"`);
  const attention = keys['rope.scaling.attn_factor'];
  return {
    ...{ rope_type: 'yarn', factor },
    original_max_position_embeddings: keys['rope.scaling.original_context_length'] ?? keys.context_length,
    beta_fast: keys['rope.scaling.yarn_beta_fast'],
    beta_slow: keys['rope.scaling.yarn_beta_slow'],
    ...(attention !== undefined && { attention_factor: shortest(attention) * (0.1 * Math.log(factor) + 1) }),
    // llama.cpp rounds the pairs between which it blends, for all models.
    truncate: true,
  };
}

/** Finds the Llama 3 scaling that has these divisors; null when every divisor is 1. */
function llama3Scaling(divisors: Float32Array, theta: number, headDim: number): Record<string, unknown> | null {
  if (divisors.every((divisor) => divisor === 1)) return null;
  const refusal = () => unsupported('rope scaling other than that of Llama 3');
  if (divisors.length !== headDim / 2) throw refusal();
  const factor = Math.max(...divisors);
  const { lowFrequencyFactor: low, highFrequencyFactor: high, originalContextLength } = LLAMA3;
  const isLlama3 = divisors.every((divisor, i) => {
    const turns = (originalContextLength * theta ** ((-2 * i) / headDim)) / (2 * Math.PI);
    const smoothing = Math.min(1, Math.max(0, (turns - low) / (high - low)));
    // Llama 3 multiplies the frequency of pair `i` by this number, whose inverse is the divisor.
    const frequencyFactor = (1 - smoothing) / factor + smoothing;
    return Math.abs(divisor * frequencyFactor - 1) < DIVISOR_TOLERANCE;
  });
  if (!isLlama3) throw refusal();
  return {
    ...{ rope_type: 'llama3', factor: shortest(factor), low_freq_factor: low, high_freq_factor: high },
    original_max_position_embeddings: originalContextLength,
  };
}

/** The shortest decimal number that is this 32-bit float: 1e-5 for 9.999999747378752e-6. */
function shortest(float: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const number = Number(float.toPrecision(digits));
    if (Math.fround(number) === Math.fround(float)) return number;
  }
  return float;
}

function unsupported(what: string): ModelError {
  return new ModelError('unsupported-model', `the GGUF model has ${what}, which Pie does not compute`);
}
