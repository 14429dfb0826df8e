import { createHash } from 'node:crypto';
import { mkdir, open, realpath, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { ModelError } from '#gpu-host/models/errors.ts';
import type { LoadedModel, TensorStore } from '#gpu-host/models/load.ts';
import { makeFile } from '#gpu-host/models/make-file.ts';
import type { FloatTensor } from '#gpu-host/models/safetensors.ts';
import { type BlockedTensor, bitsOf, isBlocked, isPacked, partsOf } from '../../models/tensors.ts';
import { ElementType, type ElementTypeNumber, type FileRange, type GraphBuilder } from './graph-builder.ts';

/**
 * Maximum bits of a weight in a multiplication: float32, or blocks of 8 or 4 bits with a float32 scale each. Where the model's file keeps a matrix in
 * blocks of at most as many bits, the multiplication uses the file's blocks.
 */
export type WeightBits = 32 | 8 | 4;

/** Number of weights that share a scale in blocks that the backend makes. 64 is up to 1.25 times faster than 32 on the CPU provider. */
export const BLOCK_SIZE = 64;

/** One matrix multiplication: the rows of `parts`, stacked, times an input of `columns` values. */
export interface LinearLayer {
  readonly name: string;
  /** Tensor names of `[rows, columns]` matrices. */
  readonly parts: readonly string[];
  readonly rows: number;
  readonly columns: number;
  readonly bits: WeightBits;
}

/** The matrix multiplications of one decoder layer. Projections of the same input are stacked into one, which is 5 % faster for a single row. */
export function layerLinears(config: ModelConfig, layer: number, bits: WeightBits) {
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim } = config;
  const make = (name: string, projections: readonly string[], rows: number, columns: number): LinearLayer => ({
    name: `${name}.${layer}`,
    parts: projections.map((projection) => `model.layers.${layer}.${projection}.weight`),
    rows,
    columns,
    bits,
  });
  return {
    qkv: make(
      'qkv',
      ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'],
      (heads + 2 * kvHeads) * headDim,
      hiddenSize,
    ),
    output: make('attention-output', ['self_attn.o_proj'], hiddenSize, heads * headDim),
    gateUp: make('gate-up', ['mlp.gate_proj', 'mlp.up_proj'], 2 * intermediateSize, hiddenSize),
    down: make('down', ['mlp.down_proj'], hiddenSize, intermediateSize),
  };
}

/** The multiplication from states to logits; its weights are the embedding table when the model ties the two. */
export function headLinear(config: ModelConfig, bits: WeightBits): LinearLayer {
  const part = config.tiedEmbeddings ? 'model.embed_tokens.weight' : 'lm_head.weight';
  return { name: 'head', parts: [part], rows: config.vocabularySize, columns: config.hiddenSize, bits };
}

/** All multiplications of a model, in a fixed order. */
export function modelLinears(config: ModelConfig, bits: WeightBits, headBits: WeightBits): LinearLayer[] {
  const linears: LinearLayer[] = [];
  for (let layer = 0; layer < config.layers; layer++) linears.push(...Object.values(layerLinears(config, layer, bits)));
  return [...linears, headLinear(config, headBits)];
}

/** The multiplications whose weights the backend quantises. */
export function quantizedLinears(
  { config, tensors }: Pick<LoadedModel, 'config' | 'tensors'>,
  bits: WeightBits,
  headBits: WeightBits,
): LinearLayer[] {
  return modelLinears(config, bits, headBits).filter(
    (linear) => linear.bits !== 32 && storedBlocks(tensors, linear) === null,
  );
}

/** The weights of a multiplication as the file has them: the parts have blocks of one kind, all with zero points or all without. */
interface StoredBlocks extends Pick<BlockedTensor, 'dtype' | 'blockSize'> {
  readonly parts: readonly BlockedTensor[];
}

/** The file's blocks that a multiplication uses; null if its parts are not in blocks of one kind, or the blocks have more bits than the layer. */
function storedBlocks(tensors: TensorStore, { parts, bits }: LinearLayer): StoredBlocks | null {
  const blocked = parts.map((part) => tensors.info(part)).filter(isBlocked);
  const [first] = blocked;
  if (first === undefined || blocked.length < parts.length || bitsOf(first.dtype) > bits) return null;
  const { dtype, blockSize } = first;
  const hasZeros = first.zeros !== null;
  const isUniform = blocked.every(
    (each) => each.dtype === dtype && each.blockSize === blockSize && (each.zeros !== null) === hasZeros,
  );
  return isUniform ? { dtype, blockSize, parts: blocked } : null;
}

/** Bits with which a multiplication's weights are kept on the device. */
export function heldBits(tensors: TensorStore, linear: LinearLayer): number {
  const stored = storedBlocks(tensors, linear);
  return stored === null ? linear.bits : bitsOf(stored.dtype);
}

/** Maximum bytes of the memory that a session takes for a multiplication: the weights as they are computed with, and once more in the kernel's order. */
export function sessionBytes(tensors: TensorStore, linear: LinearLayer): number {
  return (2 * linear.rows * linear.columns * heldBits(tensors, linear)) / 8;
}

/** The places of a multiplication's weights in files. */
export function weightRanges(
  tensors: TensorStore,
  linear: LinearLayer,
  quantized: ReadonlyMap<string, QuantizedRanges>,
): readonly FileRange[] {
  const ranges = quantized.get(linear.name);
  return ranges ? [ranges.values, ranges.scales] : linear.parts.flatMap((part) => partsOf(tensors.info(part)));
}

/** Place of a quantised layer: `values` is `[rows, blocks, BLOCK_SIZE × bits / 8]`, `scales` is `[rows × blocks]`. */
export interface QuantizedRanges {
  readonly values: FileRange;
  readonly scales: FileRange;
}

/** Adds weights and their multiplications to a graph; the bytes stay in the model's own files or in the cache's file. */
export class WeightNodes {
  readonly #graph: GraphBuilder;
  readonly #tensors: TensorStore;
  readonly #quantized: ReadonlyMap<string, QuantizedRanges>;
  readonly #normOffset: number;
  /** Names of the tensors that the graph already casts to float32. */
  readonly #widened = new Set<string>();

  constructor(
    graph: GraphBuilder,
    model: Pick<LoadedModel, 'tensors'> & { readonly config?: Pick<ModelConfig, 'normOffset'> },
    quantized: ReadonlyMap<string, QuantizedRanges>,
  ) {
    this.#graph = graph;
    this.#tensors = model.tensors;
    this.#normOffset = model.config?.normOffset ?? 0;
    this.#quantized = quantized;
  }

  /** A whole tensor as float32. The session widens a narrower tensor once, when it folds constants. */
  tensor(name: string): string {
    const info = this.#info(name);
    if (isBlocked(info))
      throw new ModelError('unsupported-model', `"${name}" is in blocks, which only a decoder's matrices may be`);
    if (info.dtype === 'F32') return this.#stored(name, info);
    const widened = `${name}:float32`;
    if (!this.#widened.has(widened)) {
      this.#graph.node('Cast', [this.#stored(name, info)], widened, { to: ElementType.float32 });
      this.#widened.add(widened);
    }
    return widened;
  }

  /** The weights of a norm as float32. */
  norm(name: string): string {
    if (this.#normOffset === 0) return this.tensor(name);
    const shifted = `${name}:shifted`;
    if (!this.#widened.has(shifted)) {
      this.#graph.node('Add', [this.tensor(name), this.#graph.float(this.#normOffset)], shifted);
      this.#widened.add(shifted);
    }
    return shifted;
  }

  /** Models of GGUF files are converted before (`convertPacked`). */
  #info(name: string): FloatTensor | BlockedTensor {
    const info = this.#tensors.info(name);
    if (isPacked(info)) throw new TypeError(`"${name}" is in ${info.type.name}, which a session does not read.`);
    return info;
  }

  /** A whole tensor in the type of its file, in whose pages the session reads it. */
  #stored(name: string, { dtype, shape, file, offset, bytes }: FloatTensor): string {
    const { float32, float16, bfloat16 } = ElementType;
    const type = { F32: float32, F16: float16, BF16: bfloat16 }[dtype];
    return this.#graph.external(name, type, shape, { file, offset, bytes });
  }

  /** Rows of a matrix as float32. */
  rows(name: string, indices: string, output: string): string {
    const info = this.#info(name);
    if (!isBlocked(info)) {
      const { dtype } = info;
      if (dtype === 'F32') return this.#graph.node('Gather', [this.tensor(name), indices], output);
      // Widen the gathered rows only: a widened matrix would take up to four bytes of memory for each value of the file.
      const narrowRows = this.#graph.node('Gather', [this.#stored(name, info), indices], `${output}:narrow`);
      return this.#graph.node('Cast', [narrowRows], output, { to: ElementType.float32 });
    }
    const { dtype, blockSize, levels, scales, zeros } = info;
    if (zeros !== null) throw new ModelError('unsupported-model', `the embeddings "${name}" have zero points`);
    const [rows = 0, blocks = 0, blockBytes = 0] = levels.shape;
    const { uint8, float32 } = ElementType;
    const inputs = [
      this.#graph.external(`${name}:rows`, uint8, [rows, blocks * blockBytes], levels),
      indices,
      this.#graph.external(`${name}:row-scales`, float32, scales.shape, scales),
    ];
    const attributes = { bits: bitsOf(dtype), block_size: blockSize, gather_axis: 0, quantize_axis: 1 };
    return this.#graph.node('GatherBlockQuantized', inputs, output, attributes);
  }

  /** `[…, columns] → […, rows]`. Hugging Face stores one row per output, hence the transposed right side. */
  multiply(x: string, linear: LinearLayer): string {
    const { name, parts, columns, bits } = linear;
    const stored = storedBlocks(this.#tensors, linear);
    if (stored !== null) return this.#multiplyStored(x, linear, stored);
    if (bits !== 32) return this.#multiplyQuantized(x, linear);
    const infos = parts.map((part) => this.#tensors.info(part));
    if (infos.some(isBlocked)) {
      // The parts are stored in unlike ways, so each gets a multiplication of its own.
      const results = parts.map((part, i) => {
        const [rows = 0] = infos[i]?.shape ?? [];
        return this.multiply(x, { name: `${name}:${i}`, parts: [part], rows, columns, bits });
      });
      return this.#graph.node('Concat', results, name, { axis: -1 });
    }
    const weight = this.#stacked(
      parts.map((part) => this.tensor(part)),
      `${name}:weight`,
    );
    return this.#graph.node('FusedMatMul', [x, weight], name, { transB: 1, alpha: { float: 1 } });
  }

  /** Stacks constants by rows; the session joins them once. */
  #stacked(parts: readonly string[], name: string): string {
    const [first = ''] = parts;
    return parts.length === 1 ? first : this.#graph.node('Concat', parts, name, { axis: 0 });
  }

  #multiplyStored(x: string, linear: LinearLayer, { dtype, blockSize, parts }: StoredBlocks): string {
    const { uint8, float32 } = ElementType;
    const constant = (kind: 'levels' | 'scales' | 'zeros', type: ElementTypeNumber): string[] => {
      const names = parts.flatMap((part, i) => {
        const stored = part[kind];
        return stored === null ? [] : [this.#graph.external(`${linear.parts[i]}:${kind}`, type, stored.shape, stored)];
      });
      return names.length === 0 ? [] : [this.#stacked(names, `${linear.name}:${kind}`)];
    };
    const weights = [...constant('levels', uint8), ...constant('scales', float32), ...constant('zeros', uint8)];
    return this.#multiplyBlocks(x, linear, weights, bitsOf(dtype), blockSize);
  }

  #multiplyQuantized(x: string, linear: LinearLayer): string {
    const { name, rows, columns, bits } = linear;
    const ranges = this.#quantized.get(name);
    if (ranges === undefined) throw new Error(`No quantised weights were made for ${name}.`);
    const blocks = Math.ceil(columns / BLOCK_SIZE);
    const blockBytes = (BLOCK_SIZE * bits) / 8;
    const values = this.#graph.external(`${name}:values`, ElementType.uint8, [rows, blocks, blockBytes], ranges.values);
    const scales = this.#graph.external(`${name}:scales`, ElementType.float32, [rows * blocks], ranges.scales);
    return this.#multiplyBlocks(x, linear, [values, scales], bits, BLOCK_SIZE);
  }

  #multiplyBlocks(
    x: string,
    { name, rows, columns }: LinearLayer,
    weights: readonly string[],
    bits: number,
    blockSize: number,
  ): string {
    // Level 4 multiplies in int8; lower levels are up to 180 times slower on the CPU provider.
    const attributes = { K: columns, N: rows, bits, block_size: blockSize, accuracy_level: 4 };
    return this.#graph.node('MatMulNBits', [x, ...weights], name, attributes);
  }
}

/** A matrix in blocks of columns: `values` is `[rows, blocks, blockSize × bits / 8]`, `scales` is `[rows × blocks]`. */
export interface QuantizedMatrix {
  readonly values: Uint8Array;
  readonly scales: Float32Array;
}

/** 8-bit and 4-bit values are unsigned around a middle zero point, which ONNX Runtime's `MatMulNBits` assumes when given no zero points. */
const ZERO_POINT = { 8: 128, 4: 8 } as const;

/**
 * Quantises a row-major matrix symmetrically in blocks of `blockSize` columns, each with a scale of its own; the last block of a row is
 * filled up with zeros. 8-bit blocks are scaled to their largest magnitude; for a 4-bit block, {@link fourBitScale} searches the scale.
 */
export function quantizeMatrix(
  weight: Float32Array,
  rows: number,
  columns: number,
  bits: 8 | 4,
  blockSize: number,
): QuantizedMatrix {
  const blocks = Math.ceil(columns / blockSize);
  const blockBytes = (blockSize * bits) / 8;
  const values = new Uint8Array(rows * blocks * blockBytes);
  const scales = new Float32Array(rows * blocks);
  const zero = ZERO_POINT[bits];
  for (let row = 0; row < rows; row++) {
    for (let block = 0; block < blocks; block++) {
      const start = row * columns + block * blockSize;
      const length = Math.min(blockSize, columns - block * blockSize);
      const scale = bits === 8 ? peak(weight, start, length).magnitude / 127 : fourBitScale(weight, start, length);
      const index = row * blocks + block;
      scales[index] = scale;
      const inverse = scale === 0 ? 0 : 1 / scale;
      for (let k = 0; k < blockSize; k++) {
        const level = k < length ? clampLevel(Math.round(weight[start + k] * inverse), zero) + zero : zero;
        if (bits === 8) values[index * blockBytes + k] = level;
        else values[index * blockBytes + (k >> 1)] |= level << ((k & 1) * 4);
      }
    }
  }
  return { values, scales };
}

function clampLevel(level: number, zero: number): number {
  return Math.max(-zero, Math.min(zero - 1, level));
}

/** The weight of the largest magnitude. */
function peak(weight: Float32Array, start: number, length: number): { magnitude: number; value: number } {
  let value = 0;
  for (let k = 0; k < length; k++) if (Math.abs(weight[start + k]) > Math.abs(value)) value = weight[start + k];
  return { magnitude: Math.abs(value), value };
}

/** Finds the scale with the least squared error. Levels reach from -8 to 7. The tried scales put the largest weight at ±6.5 to ±9; some clip it. */
function fourBitScale(weight: Float32Array, start: number, length: number): number {
  const { value } = peak(weight, start, length);
  if (value === 0) return 0;
  let best = 0;
  let leastError = Number.POSITIVE_INFINITY;
  for (let divisor = 6.5; divisor <= 9; divisor += 0.25) {
    for (const scale of [-value / divisor, value / divisor]) {
      let error = 0;
      for (let k = 0; k < length; k++) {
        const difference = weight[start + k] - clampLevel(Math.round(weight[start + k] / scale), 8) * scale;
        error += difference * difference;
      }
      if (error < leastError) {
        leastError = error;
        best = scale;
      }
    }
  }
  return best;
}

/** Part of every cache name: raise it when the quantisation or the layout changes. */
const FORMAT = 1;

/** `$XDG_CACHE_HOME/pie/quantized` or `~/.cache/pie/quantized`. */
export function defaultCacheDirectory(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'pie', 'quantized');
}

/**
 * Places of a model's quantised weights, by layer name. All lie in one file, which this function writes if it is missing. Its name is a hash of
 * the widths and of the weight files' paths, sizes and times. Empty when the graph multiplies the model file's own weights only.
 */
export async function quantizedWeights(
  model: LoadedModel,
  bits: WeightBits,
  headBits: WeightBits,
  cacheDirectory: string,
): Promise<ReadonlyMap<string, QuantizedRanges>> {
  const linears = quantizedLinears(model, bits, headBits);
  if (linears.length === 0) return new Map();
  const directory = resolve(cacheDirectory);
  await mkdir(directory, { recursive: true });
  const file = join(await realpath(directory), `${await cacheKey(model, linears)}.weights`);
  const ranges = layout(linears, file);
  const bytes = [...ranges.values()].reduce((sum, { values, scales }) => sum + values.bytes + scales.bytes, 0);
  // A machine that failed after the rename may have kept only a part of the file.
  const isComplete = () =>
    stat(file).then(
      ({ size }) => size === bytes,
      () => false,
    );
  await makeFile(file, isComplete, (partial) => write(model, linears, partial));
  return ranges;
}

async function cacheKey(model: LoadedModel, linears: readonly LinearLayer[]): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify([FORMAT, BLOCK_SIZE, linears]));
  const files = new Set(
    linears.flatMap(({ parts }) => parts.flatMap((part) => partsOf(model.tensors.info(part)).map(({ file }) => file))),
  );
  for (const file of [...files].sort()) {
    const { size, mtimeNs } = await stat(file, { bigint: true });
    hash.update(JSON.stringify([await realpath(file), String(size), String(mtimeNs)]));
  }
  return hash.digest('hex').slice(0, 32);
}

function layout(linears: readonly LinearLayer[], file: string): Map<string, QuantizedRanges> {
  const ranges = new Map<string, QuantizedRanges>();
  let offset = 0;
  const take = (bytes: number): FileRange => {
    const range = { file, offset, bytes };
    offset += bytes;
    return range;
  };
  for (const { name, rows, columns, bits } of linears) {
    const blocks = Math.ceil(columns / BLOCK_SIZE);
    const values = take((rows * blocks * BLOCK_SIZE * bits) / 8);
    ranges.set(name, { values, scales: take(rows * blocks * 4) });
  }
  return ranges;
}

async function write(model: LoadedModel, linears: readonly LinearLayer[], partial: string): Promise<void> {
  const handle = await open(partial, 'wx');
  try {
    for (const linear of linears) {
      const { values, scales } = quantizeLinear(model, linear);
      await handle.writeFile(values);
      await handle.writeFile(new Uint8Array(scales.buffer, scales.byteOffset, scales.byteLength));
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function quantizeLinear(model: LoadedModel, { parts, rows, columns, bits }: LinearLayer) {
  if (bits === 32) throw new TypeError('32-bit weights are not quantised.');
  const stacked = new Float32Array(rows * columns);
  let offset = 0;
  for (const part of parts) {
    const weight = model.tensors.read(part);
    stacked.set(weight, offset);
    offset += weight.length;
  }
  return quantizeMatrix(stacked, rows, columns, bits, BLOCK_SIZE);
}
