import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ModelConfig, parseConfig } from '../config.ts';
import { ggufLayout } from '../convert/gguf/convert.ts';
import type { Entry, FileParts, Tensor } from '../convert/gguf/testing/write.ts';
import { interleave, plainTokenizer } from '../convert/gguf/testing/write.ts';
import { ggufForm } from '../families/index.ts';
import { expectedTensors, type LoadedModel, loadModel } from '../load.ts';
import { checkpointLayout, type Place, placesOf } from '../places.ts';
import { writeSafetensors } from '../safetensors.ts';
import { gaussian, randomTensor, writePlainTokenizer } from './random-model.ts';

const SIZES = {
  ...{ hidden_size: 64, intermediate_size: 96, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2 },
  ...{ head_dim: 16, vocab_size: 300, max_position_embeddings: 128, rms_norm_eps: 1e-5, tie_word_embeddings: false },
  ...{ rope_theta: 10_000, hidden_act: 'silu', bos_token_id: 1, eos_token_id: 2 },
};
const list = (length: number, of: (i: number) => number) => Array.from({ length }, (_, i) => of(i));

/** A tiny model of a family. */
export interface TinyFamily {
  /** Its `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly gguf: {
    readonly architecture: string;
    /** Entries beyond those that all architectures share, without the architecture's prefix. */
    readonly entries?: readonly Entry[];
    /** Tensors of its rotation. */
    readonly divisors?: Readonly<Record<string, readonly number[]>>;
  };
}

const PHI_SHORT = list(4, (i) => 1 + 0.1 * i);
const PHI_LONG = list(4, (i) => 1 + 1.7 * i);

/** A model of every family, small enough for the reference, with every trait of the family in use. */
export const TINY_FAMILIES: Readonly<Record<string, TinyFamily>> = {
  llama: {
    config: { ...SIZES, model_type: 'llama', rope_theta: 500_000 },
    gguf: { architecture: 'llama' },
  },
  qwen2: { config: { ...SIZES, model_type: 'qwen2', tie_word_embeddings: true }, gguf: { architecture: 'qwen2' } },
  'qwen3, YaRN': {
    config: {
      ...{ ...SIZES, model_type: 'qwen3' },
      rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32 },
    },
    gguf: {
      architecture: 'qwen3',
      entries: [
        ['rope.scaling.type', 'text', 'yarn'],
        ['rope.scaling.factor', 'f32', 4],
        ['rope.scaling.original_context_length', 'u32', 32],
      ],
    },
  },
  qwen3_moe: {
    config: {
      ...{ ...SIZES, model_type: 'qwen3_moe', num_experts: 8, num_experts_per_tok: 3 },
      ...{ moe_intermediate_size: 32, norm_topk_prob: true },
    },
    gguf: {
      architecture: 'qwen3moe',
      entries: [
        ['expert_count', 'u32', 8],
        ['expert_used_count', 'u32', 3],
        ['expert_feed_forward_length', 'u32', 32],
      ],
    },
  },
  gemma2: {
    config: {
      ...{ ...SIZES, model_type: 'gemma2', tie_word_embeddings: true, query_pre_attn_scalar: 16, sliding_window: 8 },
      ...{ attn_logit_softcapping: 5, final_logit_softcapping: 3, hidden_activation: 'gelu_pytorch_tanh' },
    },
    gguf: {
      architecture: 'gemma2',
      entries: [
        ['attention.sliding_window', 'u32', 8],
        ['attn_logit_softcapping', 'f32', 5],
        ['final_logit_softcapping', 'f32', 3],
      ],
    },
  },
  gemma3: {
    config: {
      ...{ ...SIZES, model_type: 'gemma3_text', num_hidden_layers: 7, tie_word_embeddings: true, sliding_window: 8 },
      ...{ query_pre_attn_scalar: 16, rope_theta: 1_000_000, rope_local_base_freq: 10_000 },
      rope_scaling: { rope_type: 'linear', factor: 8 },
    },
    gguf: {
      architecture: 'gemma3',
      entries: [
        ['attention.sliding_window', 'u32', 8],
        ['rope.scaling.type', 'text', 'linear'],
        ['rope.scaling.factor', 'f32', 8],
      ],
    },
  },
  'phi3, longrope': {
    config: {
      ...{ ...SIZES, model_type: 'phi3', partial_rotary_factor: 0.5, original_max_position_embeddings: 32 },
      rope_scaling: { type: 'longrope', short_factor: PHI_SHORT, long_factor: PHI_LONG },
    },
    gguf: {
      architecture: 'phi3',
      entries: [
        ['rope.dimension_count', 'u32', 8],
        ['rope.scaling.original_context_length', 'u32', 32],
        ['rope.scaling.attn_factor', 'f32', Math.sqrt(1 + Math.log(4) / Math.log(32))],
      ],
      divisors: { 'rope_factors_short.weight': PHI_SHORT, 'rope_factors_long.weight': PHI_LONG },
    },
  },
  'gpt-oss': {
    config: {
      ...{ ...SIZES, model_type: 'gpt_oss', intermediate_size: 32, num_local_experts: 8, num_experts_per_tok: 3 },
      ...{ sliding_window: 8, attention_bias: true },
      rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32 },
    },
    gguf: {
      architecture: 'gpt-oss',
      entries: [
        ['expert_count', 'u32', 8],
        ['expert_used_count', 'u32', 3],
        ['expert_feed_forward_length', 'u32', 32],
        ['attention.sliding_window', 'u32', 8],
        ['rope.scaling.type', 'text', 'yarn'],
        ['rope.scaling.factor', 'f32', 4],
        ['rope.scaling.original_context_length', 'u32', 32],
      ],
    },
  },
  smollm3: {
    config: { ...SIZES, model_type: 'smollm3', num_hidden_layers: 5, tie_word_embeddings: true },
    gguf: { architecture: 'smollm3' },
  },
  olmo2: { config: { ...SIZES, model_type: 'olmo2' }, gguf: { architecture: 'olmo2' } },
  granite: {
    config: {
      ...{ ...SIZES, model_type: 'granite', embedding_multiplier: 12, residual_multiplier: 0.25 },
      ...{ attention_multiplier: 0.125, logits_scaling: 2 },
    },
    gguf: {
      architecture: 'granite',
      entries: [
        ['embedding_scale', 'f32', 12],
        ['residual_scale', 'f32', 0.25],
        ['attention.scale', 'f32', 0.125],
        ['logit_scale', 'f32', 2],
      ],
    },
  },
  glm4: {
    config: { ...SIZES, model_type: 'glm4', partial_rotary_factor: 0.5, attention_bias: true },
    gguf: { architecture: 'glm4', entries: [['rope.dimension_count', 'u32', 8]] },
  },
};

/** Seed of the models whose results the golden file has, and the tokens that they continue. */
export const FAMILY_SEED = 11;
export const FAMILY_PROMPT: readonly number[] = list(24, (i) => (i * 37 + 5) % SIZES.vocab_size);

/** Writes a random model of this configuration in the layout of its family's checkpoints, and loads it. */
export async function randomFamily(
  directory: string,
  { config: json }: TinyFamily,
  seed: number,
): Promise<LoadedModel> {
  const config = parseConfig(json);
  const random = gaussian(seed);
  const expected = expectedTensors(config);
  const values = new Map(
    expected.map(([name, shape]) => {
      const drawn = randomTensor(name, shape, random);
      if (name.endsWith('norm.weight')) return [name, drawn.map((value) => value - config.normOffset)] as const;
      // Tied embeddings of usual size would make every token its own successor.
      const isTied = name === 'model.embed_tokens.weight' && config.tiedEmbeddings;
      return [name, isTied ? drawn.map((value) => value / Math.sqrt(config.hiddenSize)) : drawn] as const;
    }),
  );
  const stored = assembled(values, placesOf(expected, config, checkpointLayout(config)));
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'config.json'), JSON.stringify(json, null, 2));
  await writeSafetensors(
    join(directory, 'model.safetensors'),
    Array.from(stored, ([name, { shape, data }]) => ({ name, shape, data: () => data })),
  );
  await writePlainTokenizer(directory, config.vocabularySize);
  return loadModel(directory);
}

/** The same model as a GGUF file with 32-bit floats. */
export function familyGguf({ config, tensors }: LoadedModel, { gguf }: TinyFamily): FileParts {
  const form = ggufForm(gguf.architecture);
  if (form === undefined) throw new Error(`no architecture ${gguf.architecture}`);
  const expected = expectedTensors(config);
  const values = new Map(
    expected.map(([name, shape]) => {
      const read = tensors.read(name);
      const ofHeads = /\.(q|k)_proj\.(weight|bias)$/.exec(name);
      const heads = ofHeads?.[1] === 'q' ? config.heads : config.kvHeads;
      const isPermuted = form.permuted === true && ofHeads !== null;
      return [name, isPermuted ? interleave(read, heads, shape.length === 1 ? [...shape, 1] : shape) : read] as const;
    }),
  );
  const stored = assembled(values, placesOf(expected, config, ggufLayout(form)));
  const tensor = (name: string, shape: readonly number[], data: Float32Array): Tensor => ({
    ...{ name, shape, type: 0, bytes: Buffer.from(data.buffer, data.byteOffset, data.byteLength) },
  });
  return {
    metadata: [...metadataOf(config, gguf), ...plainTokenizer(config.vocabularySize)],
    tensors: [
      ...Array.from(stored, ([name, { shape, data }]) => tensor(name, shape, data)),
      ...Object.entries(gguf.divisors ?? {}).map(([name, data]) =>
        tensor(name, [data.length], Float32Array.from(data)),
      ),
    ],
  };
}

function metadataOf(config: ModelConfig, { architecture, entries = [] }: TinyFamily['gguf']): Entry[] {
  const shared: Entry[] = [
    ['context_length', 'u32', config.contextLength],
    ['embedding_length', 'u32', config.hiddenSize],
    ['block_count', 'u32', config.layers],
    ['feed_forward_length', 'u32', config.intermediateSize],
    ['attention.head_count', 'u32', config.heads],
    ['attention.head_count_kv', 'u32', config.kvHeads],
    ['attention.key_length', 'u32', config.headDim],
    ['attention.value_length', 'u32', config.headDim],
    ['attention.layer_norm_rms_epsilon', 'f32', config.rmsNormEpsilon],
    ['rope.freq_base', 'f32', config.ropeTheta],
    ['rope.dimension_count', 'u32', config.headDim],
    ['vocab_size', 'u32', config.vocabularySize],
  ];
  const own = new Set(entries.map(([key]) => key));
  return [
    ['general.architecture', 'text', architecture],
    ['general.name', 'text', 'written'],
    ...[...shared.filter(([key]) => !own.has(key)), ...entries].map(
      ([key, type, value]): Entry => [`${architecture}.${key}`, type, value],
    ),
  ];
}

/** The tensors of a file, each put together from the parts that it holds. */
function assembled(
  values: ReadonlyMap<string, Float32Array>,
  places: ReadonlyMap<string, Place>,
): Map<string, { readonly shape: readonly number[]; readonly data: Float32Array }> {
  const stored = new Map<string, { readonly shape: readonly number[]; readonly data: Float32Array }>();
  for (const [name, { name: storedName, shape, first }] of places) {
    const size = shape.reduce((product, dimension) => product * dimension, 1);
    const tensor = stored.get(storedName) ?? { shape, data: new Float32Array(size) };
    stored.set(storedName, tensor);
    tensor.data.set(values.get(name) ?? [], (first * size) / (shape[0] ?? 1));
  }
  return stored;
}
