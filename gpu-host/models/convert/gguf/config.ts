import { z } from 'zod';
import { type Llama3RopeScaling, type ModelConfig, parseConfig } from '../../config.ts';
import { ModelError } from '../../errors.ts';
import type { GgufHeader, GgufTensor, MetadataValue } from './header.ts';

/** Architectures of llama.cpp that Pie implements; `llama` also covers Mistral. */
const ARCHITECTURES = ['llama', 'qwen2', 'qwen3'] as const;

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
  feed_forward_length: size,
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
  // An earlier key for the factor of linear scaling.
  'rope.scale_linear': z.number().positive().optional(),
  expert_count: z.int().min(0).default(0),
});

/**
 * The configuration that a GGUF file states.
 *
 * @param divisors values of `rope_freqs.weight`, by which llama.cpp divides the frequencies of a head's pairs; null when the file lacks this tensor
 * @throws ModelError `malformed-config` with the key, or `unsupported-model`
 */
export function ggufConfig(
  { metadata, tensors }: GgufHeader,
  divisors: Float32Array | null,
  special: { readonly bos: number | null; readonly eos: readonly number[] },
): ModelConfig {
  const architecture = metadata.get('general.architecture');
  const family = ARCHITECTURES.find((name) => name === architecture);
  if (family === undefined) {
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
  const keys = readKeys(family, metadata);
  refuseUnsupported(keys, metadata);
  const heads = keys['attention.head_count'];
  const headDim = keys['attention.key_length'] ?? keys.embedding_length / heads;
  const valueSize = keys['attention.value_length'] ?? headDim;
  const rotatedSize = keys['rope.dimension_count'] ?? headDim;
  if (valueSize !== headDim || rotatedSize !== headDim)
    throw unsupported('heads of which only a part is rotated, or whose values have another size than their keys');
  const ropeTheta = keys['rope.freq_base'] ?? 10_000;
  const window = keys['attention.sliding_window'] ?? 0;
  const config = parseConfig({
    model_type: family,
    hidden_size: keys.embedding_length,
    intermediate_size: keys.feed_forward_length,
    num_hidden_layers: keys.block_count,
    num_attention_heads: heads,
    num_key_value_heads: keys['attention.head_count_kv'] ?? heads,
    head_dim: headDim,
    vocab_size: vocabularySize(tensors),
    max_position_embeddings: keys.context_length,
    // A `max_window_layers` of 0 gives every layer the window; `parseConfig` then bounds the context by the window.
    ...(window > 0 && { use_sliding_window: true, sliding_window: window, max_window_layers: 0 }),
    rope_theta: ropeTheta,
    rope_scaling: linearScaling(keys),
    rms_norm_eps: shortest(keys['attention.layer_norm_rms_epsilon']),
    tie_word_embeddings: !tensors.has('output.weight'),
    bos_token_id: special.bos,
    eos_token_id: special.eos,
  });
  if (divisors === null) return config;
  if (config.ropeScaling !== null) throw unsupported('two scalings of its positions');
  return { ...config, ropeScaling: scalingOf(divisors, ropeTheta, config.headDim) };
}

type ArchitectureKeys = z.infer<typeof architectureSchema>;

function readKeys(family: string, metadata: ReadonlyMap<string, MetadataValue>): ArchitectureKeys {
  const parsed = architectureSchema.safeParse(
    Object.fromEntries(Object.keys(architectureSchema.shape).map((key) => [key, metadata.get(`${family}.${key}`)])),
  );
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new ModelError('malformed-config', `the GGUF file's "${family}.${issue?.path.join('.')}": ${issue?.message}`);
}

function refuseUnsupported(keys: ArchitectureKeys, metadata: ReadonlyMap<string, MetadataValue>): void {
  const parts = metadata.get('split.count') ?? 1;
  if (parts !== 1) {
    throw new ModelError('unsupported-model', `the file is one of ${String(parts)} parts of a model`, {
      hint: 'join them first: llama-gguf-split --merge FIRST-PART FILE.gguf',
    });
  }
  if (keys.expert_count > 0) throw unsupported(`a mixture of ${keys.expert_count} experts`);
  const scaling = keys['rope.scaling.type'];
  if (scaling !== 'none' && scaling !== 'linear' && keys['rope.scaling.factor'] !== 1)
    throw unsupported(`rope scaling "${scaling}"`);
}

/** As llama.cpp does, assumes linear scaling when the file states a factor without a type. */
function linearScaling(keys: ArchitectureKeys): { rope_type: 'linear'; factor: number } | null {
  const factor = keys['rope.scaling.factor'] ?? keys['rope.scale_linear'] ?? 1;
  return keys['rope.scaling.type'] === 'linear' && factor !== 1 ? { rope_type: 'linear', factor } : null;
}

function vocabularySize(tensors: ReadonlyMap<string, GgufTensor>): number | undefined {
  return tensors.get('token_embd.weight')?.shape[0];
}

/** Finds the Llama 3 scaling that has these divisors; null when every divisor is 1. */
function scalingOf(divisors: Float32Array, theta: number, headDim: number): Llama3RopeScaling | null {
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
  return { factor: shortest(factor), ...LLAMA3 };
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
