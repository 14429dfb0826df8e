import { z } from 'zod';
import { issueText, ModelError, type ModelErrorCode } from './errors.ts';
import { type FloatTensor, isFloat, readBytes, readBytesAhead, type StoredTensor } from './safetensors.ts';
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
  /** Maximum tokens of a context, from the model's training. */
  readonly contextLength: number;
  readonly ropeTheta: number;
  readonly ropeScaling: Llama3RopeScaling | LinearRopeScaling | null;
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

/** `rope_scaling` of type `linear`: positions are divided by `factor`. */
export interface LinearRopeScaling {
  readonly factor: number;
}

/** Number of values in one key row or one value row of a slot: `kvHeads × headDim`. */
export function kvSize(config: ModelConfig): number {
  return config.kvHeads * config.headDim;
}

/** Fewest pages of a pool by default. */
const LEAST_DEFAULT_PAGES = 1024;
/** Part of the machine's memory that a default of more pages may take. */
const DEFAULT_POOL_PART = 1 / 16;

/**
 * Pages of a pool in the machine's memory for which no setting gives a number: enough for one whole context of the model and an eighth more, so that
 * other inferlets find room beside a full one. A model with a long context gets as many as a sixteenth of the memory holds, and at least 1,024.
 *
 * @param memoryBytes memory of the machine
 */
export function defaultPages(config: ModelConfig, pageSize: number, memoryBytes: number): number {
  const wanted = Math.ceil((config.contextLength / pageSize) * (9 / 8));
  const pageBytes = pageSize * 2 * config.layers * kvSize(config) * Float32Array.BYTES_PER_ELEMENT;
  return Math.max(LEAST_DEFAULT_PAGES, Math.min(wanted, Math.floor((memoryBytes * DEFAULT_POOL_PART) / pageBytes)));
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
  partial_rotary_factor: z.number().nullish(),
});

const configSchema = z.looseObject({
  model_type: z.string(),
  architectures: z.array(z.string()).max(64).nullish(),
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
  max_window_layers: z.int().min(0).nullish(),
  layer_types: z.array(z.string()).max(1024).nullish(),
  partial_rotary_factor: z.number().nullish(),
  rope_interleaved: z.boolean().nullish(),
  quantization_config: z.unknown().optional(),
  bos_token_id: tokenId.nullish(),
  eos_token_id: z.union([tokenId, z.array(tokenId).max(64)]).nullish(),
});

type ConfigFile = z.infer<typeof configSchema>;

/** Constant defaults of transformers for absent fields; defaults that depend on other fields are not listed here. */
const FAMILY_DEFAULTS: Readonly<Record<string, Partial<ConfigFile>>> = {
  mistral: { num_key_value_heads: 8, sliding_window: 4096 },
  qwen2: { num_key_value_heads: 32, sliding_window: 4096, max_window_layers: 28 },
  qwen3: { num_key_value_heads: 32, sliding_window: 4096, max_window_layers: 28, head_dim: 128 },
};

/**
 * Reads the parsed JSON of a `config.json`, and of an optional `generation_config.json`, which may name more end tokens. Reads only the text
 * model's part of a `config.json` with a vision tower.
 *
 * @throws ModelError `malformed-config` with the field, `unsupported-model` when the backends do not implement the model's computation.
 */
export function parseConfig(json: unknown, generation: unknown = {}): ModelConfig {
  const text = splitLlava(json)?.text ?? json;
  const family = familyOf(text);
  const parsed = configSchema.safeParse(text);
  if (!parsed.success) throw malformed('config.json', parsed.error);
  const file = { ...FAMILY_DEFAULTS[family], ...parsed.data };
  refuseUnsupported(file);

  const heads = file.num_attention_heads;
  const kvHeads = file.num_key_value_heads ?? heads;
  const headDim = file.head_dim ?? file.hidden_size / heads;
  if (heads % kvHeads !== 0) {
    throw new ModelError(
      'malformed-config',
      `config.json: "num_key_value_heads": ${heads} heads cannot share ${kvHeads} key and value heads`,
    );
  }
  if (!Number.isInteger(headDim) || headDim % 2 !== 0) {
    throw new ModelError(
      'malformed-config',
      `config.json: "head_dim": a head of ${headDim} values cannot be rotated in pairs`,
    );
  }
  const rope = ropeOf(file);
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
    ropeTheta: file.rope_theta ?? rope.values.rope_theta ?? 10_000,
    ropeScaling: ropeScalingOf(rope),
    rmsNormEpsilon: file.rms_norm_eps,
    tiedEmbeddings: file.tie_word_embeddings ?? false,
    attentionBias: family === 'qwen2',
    queryKeyNorm: family === 'qwen3',
    bosTokenId: tokensOf(file, file.bos_token_id)[0] ?? null,
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
    sliding_window: null,
    rope_scaling: scaling && ropeScalingToJson(scaling),
    rms_norm_eps: config.rmsNormEpsilon,
    tie_word_embeddings: config.tiedEmbeddings,
    hidden_act: 'silu',
    bos_token_id: config.bosTokenId,
    eos_token_id: config.eosTokenIds.length === 1 ? config.eosTokenIds[0] : config.eosTokenIds,
  };
}

function ropeScalingToJson(scaling: Llama3RopeScaling | LinearRopeScaling): Record<string, unknown> {
  if (!isLlama3(scaling)) return { rope_type: 'linear', factor: scaling.factor };
  return {
    rope_type: 'llama3',
    factor: scaling.factor,
    low_freq_factor: scaling.lowFrequencyFactor,
    high_freq_factor: scaling.highFrequencyFactor,
    original_max_position_embeddings: scaling.originalContextLength,
  };
}

export function isLlama3(scaling: Llama3RopeScaling | LinearRopeScaling): scaling is Llama3RopeScaling {
  return 'lowFrequencyFactor' in scaling;
}

function familyOf(json: unknown): string {
  const type = z.looseObject({ model_type: z.string() }).safeParse(json);
  if (!type.success) throw malformed('config.json', type.error);
  const family = type.data.model_type;
  if (!(FAMILIES as readonly string[]).includes(family)) {
    throw new ModelError(
      'unsupported-model',
      `config.json: "model_type": models of type "${family}" are not supported`,
      {
        hint: `supported model types: ${FAMILIES.join(', ')}, and ${LLAVA} over one of them`,
      },
    );
  }
  return family;
}

function refuseUnsupported(file: ConfigFile): void {
  const { architectures, quantization_config: quantization, hidden_act: activation } = file;
  const refuse = (field: string, what: string, hint?: string) => {
    throw new ModelError('unsupported-model', `config.json: "${field}": ${what}`, hint === undefined ? {} : { hint });
  };
  if (quantization !== undefined && quantization !== null) {
    refuse(
      'quantization_config',
      'the weights are quantised',
      'a pull converts a quantised checkpoint (`pie models pull`); a model with a vision tower needs bf16, fp16 or fp32 weights',
    );
  }
  const other = architectures?.find((name) => /For(?!CausalLM|ConditionalGeneration)/.test(name));
  if (other !== undefined) refuse('architectures', `${other} does not generate text`);
  // With `attention_bias`, Llama and Qwen3 put a bias on the output projection, too; Qwen2 always has q, k and v biases only.
  if (file.attention_bias && file.model_type !== 'qwen2') refuse('attention_bias', 'not supported for this model type');
  if (file.mlp_bias) refuse('mlp_bias', 'not supported');
  if (file.rope_interleaved) refuse('rope_interleaved', 'not supported');
  if ((file.partial_rotary_factor ?? 1) !== 1) refuse('partial_rotary_factor', 'not supported');
  if (activation && activation !== 'silu' && activation !== 'swish')
    refuse('hidden_act', `the activation "${activation}" is not supported`);
  const kind = file.layer_types?.find((type) => type !== 'full_attention' && type !== 'sliding_attention');
  if (kind !== undefined) refuse('layer_types', `layers of type "${kind}" are not supported`);
}

/** Full attention gives the same results inside the sliding window, so the window bounds the context instead of changing the mask. */
function contextLengthOf(file: ConfigFile): number {
  const { max_position_embeddings: maxPositions, num_hidden_layers: layers, max_window_layers, layer_types } = file;
  // All layers of Mistral have the window. Qwen's layers after the first `max_window_layers` have it, if `use_sliding_window` is set.
  const someLayerSlides = layer_types?.includes('sliding_attention') ?? layers > (max_window_layers ?? 0);
  const hasSlidingWindow =
    file.model_type === 'mistral' ? file.use_sliding_window !== false : someLayerSlides && file.use_sliding_window;
  return hasSlidingWindow ? Math.min(file.sliding_window ?? maxPositions, maxPositions) : maxPositions;
}

/** The rotation's parameters, and the field that has them. */
interface Rope {
  readonly field: 'rope_parameters' | 'rope_scaling';
  readonly values: z.infer<typeof ropeSchema>;
}

function ropeOf({ rope_parameters, rope_scaling }: ConfigFile): Rope {
  return rope_parameters
    ? { field: 'rope_parameters', values: rope_parameters }
    : { field: 'rope_scaling', values: rope_scaling ?? {} };
}

function ropeScalingOf({ field, values }: Rope): ModelConfig['ropeScaling'] {
  const refuse = (code: ModelErrorCode, what: string, hint?: string): never => {
    throw new ModelError(code, `config.json: "${field}": ${what}`, hint === undefined ? {} : { hint });
  };
  if (values.full_attention || values.sliding_attention)
    refuse('unsupported-model', 'another rotation for each type of layer is not supported');
  if ((values.partial_rotary_factor ?? 1) !== 1) refuse('unsupported-model', 'partial_rotary_factor is not supported');
  const { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } = values;
  const type = values.rope_type ?? values.type ?? 'default';
  switch (type) {
    // `dynamic` changes the rotation only of contexts longer than `max_position_embeddings`, which Pie does not serve.
    case 'default':
    case 'dynamic':
      return null;
    case 'linear':
      return factor ? { factor } : refuse('malformed-config', '"linear" lacks its factor');
    case 'llama3':
      if (!factor || !low_freq_factor || !high_freq_factor || !original_max_position_embeddings)
        return refuse('malformed-config', '"llama3" lacks one of its four parameters');
      return {
        factor,
        lowFrequencyFactor: low_freq_factor,
        highFrequencyFactor: high_freq_factor,
        originalContextLength: original_max_position_embeddings,
      };
    default:
      return refuse(
        'unsupported-model',
        `rope scaling "${type}" is not supported`,
        'supported: none, linear, dynamic and llama3',
      );
  }
}

function endTokens(file: ConfigFile, generation: unknown): number[] {
  const extra = z.looseObject({ eos_token_id: configSchema.shape.eos_token_id }).safeParse(generation);
  const generationIds = extra.success ? extra.data.eos_token_id : null;
  return [...new Set([...tokensOf(file, file.eos_token_id), ...tokensOf(file, generationIds)])];
}

/** The ids that the vocabulary has. Some repositories name tokens that their model has no row for. */
function tokensOf({ vocab_size }: ConfigFile, ids: number | readonly number[] | null | undefined): number[] {
  return [ids ?? []].flat().filter((id) => id < vocab_size);
}

function malformed(what: string, error: z.ZodError): ModelError {
  return new ModelError('malformed-config', `${what}: ${issueText(error)}`);
}

/**
 * A matrix whose rows are cut into blocks of columns; each block has its own scale. A value is `(level − zero) × scale`; without zero points,
 * `zero` is `2^(bits − 1)`. Levels are unsigned; two levels of 4 bits share a byte, the first in its low half. ONNX Runtime's `MatMulNBits`
 * takes matrices in this form without a conversion.
 *
 * A file stores such a matrix as two tensors: `NAME.int8` or `NAME.int4` (U8, `[rows, blocks, bytes of a block]`) and `NAME.scales` (F32,
 * `[rows, blocks]`). Zero points are a third tensor, `NAME.zeros` (U8, `[rows, bytes of a row's zero points]`); each has as many bits as a level.
 */
export interface BlockedTensor {
  readonly dtype: 'int8' | 'int4';
  /** Rows and columns. */
  readonly shape: readonly number[];
  readonly blockSize: BlockSize;
  readonly levels: StoredTensor;
  readonly scales: StoredTensor;
  readonly zeros: StoredTensor | null;
}

export const BLOCK_SIZES = [128, 64, 32, 16] as const;

/** Columns of a block. */
export type BlockSize = (typeof BLOCK_SIZES)[number];

/** Location of a tensor's values in its files: plain floats, or levels and scales. */
export type TensorInfo = FloatTensor | BlockedTensor;

/** Contents of a {@link BlockedTensor}, all in the order of its blocks. The zero points of each row begin at a new byte. */
export interface Blocks {
  readonly levels: Uint8Array;
  readonly scales: Float32Array;
  readonly zeros?: { readonly points: Uint8Array; readonly blocksOfRow: number } | null;
}

export function bitsOf(dtype: BlockedTensor['dtype']): 8 | 4 {
  return dtype === 'int8' ? 8 : 4;
}

export function isBlocked(info: TensorInfo): info is BlockedTensor {
  return info.dtype === 'int8' || info.dtype === 'int4';
}

/** The stored tensors that together hold a tensor's values. */
export function partsOf(info: TensorInfo): readonly StoredTensor[] {
  if (!isBlocked(info)) return [info];
  return info.zeros === null ? [info.levels, info.scales] : [info.levels, info.scales, info.zeros];
}

/** The values of the blocks. Each value is rounded only once, to 32 bits. */
export function dequantize(
  { levels, scales, zeros }: Blocks,
  dtype: BlockedTensor['dtype'],
  blockSize: number,
): Float32Array {
  const values = new Float32Array(scales.length * blockSize);
  const middle = dtype === 'int8' ? 128 : 8;
  for (let block = 0, i = 0; block < scales.length; block++) {
    const scale = scales[block] as number;
    const zero = zeros ? zeroPoint(zeros.points, block, zeros.blocksOfRow, dtype) : middle;
    for (const end = i + blockSize; i < end; i++) {
      const level = dtype === 'int8' ? (levels[i] as number) : ((levels[i >> 1] as number) >> ((i & 1) * 4)) & 15;
      values[i] = (level - zero) * scale;
    }
  }
  return values;
}

/** The zero point of a block. */
function zeroPoint(points: Uint8Array, block: number, blocksOfRow: number, dtype: BlockedTensor['dtype']): number {
  if (dtype === 'int8') return points[block] as number;
  const inRow = block % blocksOfRow;
  const at = ((block - inRow) / blocksOfRow) * Math.ceil(blocksOfRow / 2) + (inRow >> 1);
  return ((points[at] as number) >> ((inRow & 1) * 4)) & 15;
}

/** Reads a matrix from its file, as 32-bit floats. */
export function readBlocked(matrix: BlockedTensor): Float32Array {
  const { levels, scales, zeros } = matrix;
  return valuesOf(matrix, readBytes(levels), readBytes(scales), zeros && readBytes(zeros));
}

/** Like {@link readBlocked}, but leaves the thread free while it waits for the disk. */
export async function readBlockedAhead(matrix: BlockedTensor): Promise<Float32Array> {
  const { levels, scales, zeros } = matrix;
  return valuesOf(
    matrix,
    await readBytesAhead(levels),
    await readBytesAhead(scales),
    zeros && (await readBytesAhead(zeros)),
  );
}

function valuesOf(
  { dtype, blockSize, scales }: BlockedTensor,
  levels: Uint8Array,
  scaleBytes: Buffer<ArrayBuffer>,
  points: Uint8Array | null,
): Float32Array {
  const zeros = points && { points, blocksOfRow: scales.shape[1] ?? 1 };
  return dequantize({ levels, scales: new Float32Array(scaleBytes.buffer), zeros }, dtype, blockSize);
}

/** Names of the tensors that hold a matrix in blocks. */
export function blockedNames(name: string, dtype: BlockedTensor['dtype']) {
  return { levels: `${name}.${dtype}`, scales: `${name}.scales`, zeros: `${name}.zeros` } as const;
}

/** The float tensors of a file or of shards, and the matrices in blocks under the matrices' names; leaves out all other tensors. */
export function tensorsOf(stored: ReadonlyMap<string, StoredTensor>): Map<string, TensorInfo> {
  const tensors = new Map<string, TensorInfo>();
  for (const [name, tensor] of stored) {
    if (isFloat(tensor)) tensors.set(name, tensor);
    if (tensor.dtype !== 'U8') continue;
    const [, matrix, dtype] = /^(.+)\.(int8|int4)$/.exec(name) ?? [];
    if (matrix === undefined) continue;
    const scales = stored.get(`${matrix}.scales`);
    const zeros = stored.get(`${matrix}.zeros`) ?? null;
    const blocked = blockedOf(tensor, dtype as BlockedTensor['dtype'], scales, zeros);
    if (blocked !== null) tensors.set(matrix, blocked);
  }
  return tensors;
}

/** The matrix in blocks that these stored tensors form; null when their types or shapes do not fit each other. */
function blockedOf(
  levels: StoredTensor,
  dtype: BlockedTensor['dtype'],
  scales: StoredTensor | undefined,
  zeros: StoredTensor | null,
): BlockedTensor | null {
  const [rows = 0, blocks = 0, bytes = 0] = levels.shape;
  const blockSize = BLOCK_SIZES.find((size) => size * bitsOf(dtype) === bytes * 8);
  const zeroBytes = Math.ceil((blocks * bitsOf(dtype)) / 8);
  const fits =
    scales?.dtype === 'F32' &&
    String(scales.shape) === String([rows, blocks]) &&
    levels.shape.length === 3 &&
    (zeros === null || (zeros.dtype === 'U8' && String(zeros.shape) === String([rows, zeroBytes])));
  if (!fits || blockSize === undefined) return null;
  return { dtype, shape: [rows, blocks * blockSize], blockSize, levels, scales, zeros };
}
