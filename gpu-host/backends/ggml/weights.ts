import { type BlockedTensor, bitsOf, isBlocked, type ModelConfig, partsOf } from '#gpu-host/models/config.ts';
import { expectedTensors, type LoadedModel } from '#gpu-host/models/load.ts';
import { readBytes } from '#gpu-host/models/safetensors.ts';
import { rotaryFrequencies } from '../rotary.ts';
import type { Ggml, GgmlDevice } from './library.ts';
import { CONSTANTS, type Pointer } from './signatures.ts';

const { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0 } = CONSTANTS;

/** Bits of a weight: floats, or ggml's Q8_0 or Q4_0. */
export type WeightBits = 32 | 8 | 4;

/** Columns of a block of Q8_0 and Q4_0. */
const BLOCK = 32;
const QUANTISED_TYPES = { 8: GGML_TYPE_Q8_0, 4: GGML_TYPE_Q4_0 } as const;

/**
 * Positions up to which one rotation is exact enough. ggml computes angles in 32 bits, so the angle of a far position would have an error of up to
 * 1e-7 of itself: the graph rotates by the multiple of the span, whose angle is known modulo 2π, and by the rest.
 */
export const ROTATION_SPAN = 1024;

/** How the graph rotates queries and keys. */
export interface Rotation {
  /** Pairs of elements: `GGML_ROPE_TYPE_NEOX` for (i, i + half), as in Hugging Face's files. */
  readonly mode: number;
  /** Divisors of positions below {@link ROTATION_SPAN}, one for each pair. */
  readonly near: Pointer;
  /** Divisors of multiples of {@link ROTATION_SPAN}. */
  readonly far: Pointer;
}

export interface LayerWeights {
  readonly inputNorm: Pointer;
  readonly query: Pointer;
  readonly key: Pointer;
  readonly value: Pointer;
  readonly queryBias: Pointer | null;
  readonly keyBias: Pointer | null;
  readonly valueBias: Pointer | null;
  readonly queryNorm: Pointer | null;
  readonly keyNorm: Pointer | null;
  readonly output: Pointer;
  readonly postNorm: Pointer;
  readonly gate: Pointer;
  readonly up: Pointer;
  readonly down: Pointer;
}

/** A model's weights as tensors of ggml. The graph knows nothing of where they lie and of their types. */
export interface Weights {
  readonly embeddings: Pointer;
  readonly layers: readonly LayerWeights[];
  readonly norm: Pointer;
  readonly head: Pointer;
  readonly rotation: Rotation;
  /** Bits of each matrix of the layers, and of the head. */
  readonly bits: { readonly layers: readonly WeightBits[]; readonly head: WeightBits };
  readonly bytes: number;
  dispose(): void;
}

export interface WeightOptions {
  readonly bits: WeightBits;
  readonly headBits: WeightBits;
}

/** Copies a model's weights into memory of the device. Matrices in blocks of the model's file keep their bits where they are narrower. */
export function loadWeights(ggml: Ggml, device: GgmlDevice, model: LoadedModel, options: WeightOptions): Weights {
  const { functions } = ggml;
  const { config } = model;
  const plans = expectedTensors(config).map(([name, shape]) => planOf(model, name, shape, options));
  const context = ggml.context(plans.length + 2);
  const made = new Map(
    plans.map((plan) => {
      const [columns = 1, rows] = plan.shape.toReversed();
      const tensor =
        rows === undefined
          ? functions.ggml_new_tensor_1d(context, plan.type, columns)
          : functions.ggml_new_tensor_2d(context, plan.type, columns, rows);
      return [plan.name, tensor] as const;
    }),
  );
  const near = functions.ggml_new_tensor_1d(context, GGML_TYPE_F32, config.headDim / 2);
  const far = functions.ggml_new_tensor_1d(context, GGML_TYPE_F32, config.headDim / 2);
  const buffer = functions.ggml_backend_alloc_ctx_tensors_from_buft(
    context,
    functions.ggml_backend_dev_buffer_type(device.handle),
  );
  if (!buffer) {
    functions.ggml_free(context);
    throw new Error('the weights do not fit the memory');
  }
  const dispose = () => {
    functions.ggml_backend_buffer_free(buffer);
    functions.ggml_free(context);
  };
  const set = (tensor: Pointer, bytes: ArrayBufferView) =>
    functions.ggml_backend_tensor_set(tensor, bytes, 0, bytes.byteLength);
  try {
    functions.ggml_backend_buffer_set_usage(buffer, CONSTANTS.GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (const plan of plans) set(made.get(plan.name) as Pointer, valuesOf(ggml, model, plan));
    const frequencies = rotaryFrequencies(config);
    set(
      near,
      Float32Array.from(frequencies, (frequency) => 1 / frequency),
    );
    set(
      far,
      Float32Array.from(frequencies, (frequency) => 1 / remainder(ROTATION_SPAN * frequency)),
    );
  } catch (error) {
    dispose();
    throw error;
  }
  const bitsOfPlan = (name: string) => plans.find((plan) => plan.name === name)?.bits ?? 32;
  const headName = config.tiedEmbeddings ? EMBEDDINGS : HEAD;
  return {
    ...byRole(config, (name) => made.get(name) as Pointer),
    rotation: { mode: CONSTANTS.GGML_ROPE_TYPE_NEOX, near, far },
    bits: {
      layers: plans.filter(({ name }) => /_proj\.weight$/.test(name)).map(({ bits }) => bits),
      head: bitsOfPlan(headName),
    },
    bytes: functions.ggml_backend_buffer_get_size(buffer),
    dispose,
  };
}

const EMBEDDINGS = 'model.embed_tokens.weight';
const HEAD = 'lm_head.weight';

/** The tensors of a model by their role, from their names in Hugging Face's files. */
function byRole(config: ModelConfig, tensor: (name: string) => Pointer) {
  const layers = Array.from({ length: config.layers }, (_, index): LayerWeights => {
    const of = (name: string) => tensor(`model.layers.${index}.${name}`);
    const bias = (name: string) => (config.attentionBias ? of(`self_attn.${name}_proj.bias`) : null);
    const norm = (name: string) => (config.queryKeyNorm ? of(`self_attn.${name}_norm.weight`) : null);
    return {
      inputNorm: of('input_layernorm.weight'),
      query: of('self_attn.q_proj.weight'),
      key: of('self_attn.k_proj.weight'),
      value: of('self_attn.v_proj.weight'),
      queryBias: bias('q'),
      keyBias: bias('k'),
      valueBias: bias('v'),
      queryNorm: norm('q'),
      keyNorm: norm('k'),
      output: of('self_attn.o_proj.weight'),
      postNorm: of('post_attention_layernorm.weight'),
      gate: of('mlp.gate_proj.weight'),
      up: of('mlp.up_proj.weight'),
      down: of('mlp.down_proj.weight'),
    };
  });
  return {
    embeddings: tensor(EMBEDDINGS),
    layers,
    norm: tensor('model.norm.weight'),
    head: tensor(config.tiedEmbeddings ? EMBEDDINGS : HEAD),
  };
}

/** A tensor to make. */
interface Plan {
  readonly name: string;
  readonly shape: readonly number[];
  readonly type: number;
  readonly bits: WeightBits;
}

function planOf(model: LoadedModel, name: string, shape: readonly number[], options: WeightOptions): Plan {
  const info = model.tensors.info(name);
  const float = { name, shape, type: GGML_TYPE_F32, bits: 32 } as const;
  if (shape.length !== 2) return float;
  const isHead = name === (model.config.tiedEmbeddings ? EMBEDDINGS : HEAD);
  // A table that is only looked up needs no conversion: ggml widens the rows that it reads.
  if (name === EMBEDDINGS && !isHead && info.dtype === 'F16') return { ...float, type: GGML_TYPE_F16 };
  const stored = isBlocked(info) && fitsBlocks(info) ? bitsOf(info.dtype) : 32;
  const wanted = name === EMBEDDINGS && !isHead ? 32 : isHead ? options.headBits : options.bits;
  const bits = Math.min(stored, wanted) as WeightBits;
  if (bits === 32 || (shape[1] ?? 0) % BLOCK !== 0) return float;
  return { name, shape, type: QUANTISED_TYPES[bits], bits };
}

/** True when ggml's blocks can hold the matrix without a change of its values, up to the width of the scales. */
function fitsBlocks({ blockSize, zeros }: BlockedTensor): boolean {
  return blockSize === BLOCK && zeros === null;
}

function valuesOf(ggml: Ggml, { tensors }: LoadedModel, { name, shape, type, bits }: Plan): ArrayBufferView {
  const info = tensors.info(name);
  if (type === GGML_TYPE_F16 && !isBlocked(info)) return readBytes(info);
  if (isBlocked(info) && bits !== 32 && bits === bitsOf(info.dtype) && fitsBlocks(info)) {
    const packed = packBlocks(info);
    if (packed !== null) return packed;
  }
  const values = tensors.read(name);
  if (bits === 32) return values;
  const [rows = 0, columns = 0] = shape;
  const quantised = new Uint8Array(rows * ggml.functions.ggml_row_size(type, columns));
  ggml.functions.ggml_quantize_chunk(type, values, quantised, 0, rows, columns, null);
  return quantised;
}

/** The matrix as blocks of Q8_0 or Q4_0 with the same values; null when a scale is not exact in 16 bits. */
function packBlocks(matrix: BlockedTensor): Uint8Array | null {
  const [levelPart, scalePart] = partsOf(matrix);
  if (levelPart === undefined || scalePart === undefined) return null;
  const levels = readBytes(levelPart);
  const scales = new Float32Array(readBytes(scalePart).buffer);
  const halves = Float16Array.from(scales);
  if (halves.some((half, i) => half !== scales[i])) return null;
  const scaleBytes = new Uint8Array(halves.buffer);
  const isByte = matrix.dtype === 'int8';
  const levelBytes = isByte ? BLOCK : BLOCK / 2;
  const blockBytes = 2 + levelBytes;
  const packed = new Uint8Array(scales.length * blockBytes);
  for (let block = 0; block < scales.length; block++) {
    const to = block * blockBytes;
    const from = block * levelBytes;
    packed[to] = scaleBytes[2 * block] as number;
    packed[to + 1] = scaleBytes[2 * block + 1] as number;
    // Levels of 8 bits are signed in ggml. Those of 4 bits lie in another order: a byte has levels i and i + 16 of its block.
    if (isByte) for (let i = 0; i < BLOCK; i++) packed[to + 2 + i] = (levels[from + i] as number) ^ 0x80;
    else
      for (let i = 0; i < BLOCK / 2; i++) {
        const low = ((levels[from + (i >> 1)] as number) >> ((i & 1) * 4)) & 15;
        const high = ((levels[from + 8 + (i >> 1)] as number) >> ((i & 1) * 4)) & 15;
        packed[to + 2 + i] = low | (high << 4);
      }
  }
  return packed;
}

/** The angle in [-π, π] that is equal modulo 2π. */
function remainder(angle: number): number {
  return angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
}
