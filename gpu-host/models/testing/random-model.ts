import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { adapterTensors, type LoadedAdapter, loadAdapter, PROJECTIONS, type Projection } from '../adapter.ts';
import { configToJson, type ModelConfig, PLAIN_TRAITS, plainTraits } from '../config.ts';
import { expectedTensors, type LoadedModel, loadModel } from '../load.ts';
import { writeSafetensors } from '../safetensors.ts';

/** A model that is small enough for the float64 reference, and has grouped queries (fewer heads of keys and values than of queries). */
const TINY: Omit<ModelConfig, 'rotaryDim' | 'attentionScale'> = {
  ...PLAIN_TRAITS,
  family: 'llama',
  hiddenSize: 32,
  intermediateSize: 64,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 8,
  vocabularySize: 96,
  contextLength: 256,
  ropeTheta: 10_000,
  ropeScaling: null,
  rmsNormEpsilon: 1e-5,
  tiedEmbeddings: false,
  bosTokenId: 1,
  eosTokenIds: [2],
};

/**
 * Writes a tiny random model for tests in Hugging Face layout (config.json, model.safetensors, a tokenizer of one token per byte or
 * character) and loads it. The same config and seed give the same bytes. `family: 'qwen2'` adds biases, `'qwen3'` query and key norms.
 */
export async function randomModel(directory: string, config: Partial<ModelConfig>, seed: number): Promise<LoadedModel> {
  const full = tinyConfig(config);
  const random = gaussian(seed);
  const tensors = expectedTensors(full).map(([name, shape]) => ({
    name,
    shape,
    data: () => randomTensor(name, shape, random),
  }));
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'config.json'), JSON.stringify(configToJson(full), null, 2));
  await writeSafetensors(join(directory, 'model.safetensors'), tensors);
  await writePlainTokenizer(directory, full.vocabularySize);
  return loadModel(directory);
}

/** A tiny model's config, with the fields of `config` replaced. */
export function tinyConfig(config: Partial<ModelConfig>): ModelConfig {
  const family = config.family ?? (config.attentionBias ? 'qwen2' : config.queryKeyNorm ? 'qwen3' : TINY.family);
  return {
    ...TINY,
    ...plainTraits(config.headDim ?? TINY.headDim),
    ...config,
    ...{ family, attentionBias: family === 'qwen2', queryKeyNorm: family === 'qwen3' },
  };
}

/** Additions of {@link writePlainTokenizer}. */
export interface PlainTokenizerOptions {
  /** Special tokens with the first ids after the ordinary ones. */
  readonly special?: readonly string[];
  readonly chatTemplate?: string | undefined;
}

/** Writes a tokenizer of one token per byte, or per printable character. */
export async function writePlainTokenizer(
  directory: string,
  vocabularySize: number,
  { special = [], chatTemplate }: PlainTokenizerOptions = {},
): Promise<void> {
  const config = { ...TOKENIZER_CONFIG, ...(chatTemplate !== undefined && { chat_template: chatTemplate }) };
  await writeFile(join(directory, 'tokenizer.json'), JSON.stringify(plainTokenizer(vocabularySize, special)));
  await writeFile(join(directory, 'tokenizer_config.json'), JSON.stringify(config));
}

/** Options of {@link randomAdapter}; rank 2, scale 2 and all projections by default. */
export interface RandomAdapterOptions {
  readonly rank?: number;
  readonly alpha?: number;
  readonly rslora?: boolean;
  readonly targets?: readonly Projection[];
}

/**
 * Writes a random low-rank adapter in PEFT layout for tests, and loads it. Its changes are nearly as large as the
 * weights of {@link randomModel}, so that a test cannot miss them. The same options and seed give the same bytes.
 */
export async function randomAdapter(
  directory: string,
  model: ModelConfig,
  seed: number,
  options: RandomAdapterOptions = {},
): Promise<LoadedAdapter> {
  const { rank = 2, alpha = 2 * rank, rslora = false, targets = PROJECTIONS } = options;
  const random = gaussian(seed);
  const tensors = adapterTensors(model, { rank, targets }).map(([name, shape]) => ({
    name,
    shape,
    // `randomTensor` has a deviation of 1.5 / √columns. So `A` about keeps the magnitude of its input (1.5 × 0.7 ≈ 1), and `B` scales it by
    // 1.5 × 0.3 = 0.45.
    data: () => randomTensor(name, shape, () => random() * (name.includes('lora_A') ? 0.7 : 0.3)),
  }));
  const config = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    r: rank,
    lora_alpha: alpha,
    use_rslora: rslora,
    target_modules: targets,
    bias: 'none',
    init_lora_weights: true,
  };
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'adapter_config.json'), JSON.stringify(config, null, 2));
  await writeSafetensors(join(directory, 'adapter_model.safetensors'), tensors);
  return loadAdapter(directory, model);
}

const SPECIAL = ['<unk>', '<s>', '</s>'];
const TOKENIZER_CONFIG = {
  bos_token: '<s>',
  eos_token: '</s>',
  unk_token: '<unk>',
  chat_template:
    "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
};

/** Ids 0 to 2 are special; then every byte, or as many printable ASCII characters as fit a smaller vocabulary. */
function plainTokenizer(vocabularySize: number, more: readonly string[]): object {
  const hasByteTokens = vocabularySize >= SPECIAL.length + 256;
  const ordinary = hasByteTokens
    ? Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`)
    : Array.from({ length: Math.min(95, vocabularySize - SPECIAL.length) }, (_, i) => String.fromCharCode(32 + i));
  return {
    version: '1.0',
    added_tokens: [
      ...SPECIAL.map((content, id) => ({ id, content, special: true, normalized: false })),
      ...more.map((content, i) => ({
        id: SPECIAL.length + ordinary.length + i,
        content,
        special: true,
        normalized: false,
      })),
    ],
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder: { type: 'Sequence', decoders: [{ type: 'ByteFallback' }, { type: 'Fuse' }] },
    model: {
      type: 'BPE',
      unk_token: '<unk>',
      fuse_unk: false,
      byte_fallback: hasByteTokens,
      vocab: Object.fromEntries([...SPECIAL, ...ordinary, ...more].map((token, id) => [token, id])),
      merges: [],
    },
  };
}

/** A random tensor, scaled so that activations stay near one at any depth and logits differ clearly. */
export function randomTensor(name: string, shape: readonly number[], random: () => number): Float32Array {
  const values = new Float32Array(shape.reduce((product, dimension) => product * dimension, 1));
  const mean = isNorm(name) ? 1 : 0;
  const deviation = deviationOf(name, shape);
  for (let i = 0; i < values.length; i++) values[i] = mean + deviation * random();
  return values;
}

function isNorm(name: string): boolean {
  return name.endsWith('norm.weight');
}

function deviationOf(name: string, shape: readonly number[]): number {
  if (isNorm(name)) return 0.1;
  // A bias.
  if (shape.length === 1) return 0.3;
  if (name.includes('embed')) return 1;
  return 1.5 / Math.sqrt(shape[1] ?? 1);
}

/** Uniform numbers from 0 up to, not including, 1 (splitmix32). */
export function splitmix(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** Standard normal values from a 32-bit seed (splitmix32 and Box–Muller). */
export function gaussian(seed: number): () => number {
  const uniform = splitmix(seed);
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}
