import { closeSync, fstatSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { type TensorType, TYPES } from '#gpu-host/models/convert/gguf/types.ts';
import { expectedTensors, type LoadedModel, openWeights } from '#gpu-host/models/load.ts';
import { openUnchanged, readBytes, type StoredRange } from '#gpu-host/models/safetensors.ts';
import {
  type BlockedTensor,
  bitsOf,
  isBlocked,
  isPacked,
  packedBytes,
  partsOf,
  type TensorInfo,
} from '#gpu-host/models/tensors.ts';
import { rotationsOf } from '../rotary.ts';
import { type Ggml, type GgmlDevice, type MappedFile, tooLittleMemory } from './library.ts';
import { CONSTANTS, type Pointer } from './signatures.ts';

const { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0 } = CONSTANTS;

/** Most bits of a weight. Matrices with more become Q8_0 or Q4_0; others keep the type of their file. */
export type WeightBits = 32 | 8 | 4;

/** Columns of a block of Q8_0 and Q4_0. */
const BLOCK = 32;
const QUANTISED_TYPES = { 8: GGML_TYPE_Q8_0, 4: GGML_TYPE_Q4_0 } as const;
/** Most rotations that the layers of a model have. */
const MOST_ROTATIONS = 2;
/** Alignment that ggml demands of a tensor's memory, bytes. */
const ALIGNMENT = 32;

/**
 * Positions up to which one rotation is exact enough. ggml computes angles in 32 bits, so the angle of a far position would have an error of up to
 * 1e-7 of itself: the graph rotates by the multiple of the span, whose angle is known modulo 2π, and by the rest.
 */
export const ROTATION_SPAN = 1024;

/** How a layer of the graph rotates queries and keys. */
export interface LayerRotation {
  /** Pairs of elements: `GGML_ROPE_TYPE_NEOX` for (i, i + half), as in Hugging Face's files, `GGML_ROPE_TYPE_NORMAL` for (2i, 2i + 1). */
  readonly mode: number;
  /** Rotated elements of a head. */
  readonly dimensions: number;
  /** Factor of the rotated elements. */
  readonly scale: number;
  /** Divisors of positions below {@link ROTATION_SPAN}, one for each pair. */
  readonly near: Pointer;
  /** Divisors of multiples of {@link ROTATION_SPAN}. */
  readonly far: Pointer;
}

/** A layer's tensors; null where the model has none. Experts' matrices have a third dimension, the expert. */
export interface LayerWeights {
  readonly inputNorm: Pointer | null;
  readonly query: Pointer;
  readonly key: Pointer;
  readonly value: Pointer;
  readonly queryBias: Pointer | null;
  readonly keyBias: Pointer | null;
  readonly valueBias: Pointer | null;
  readonly queryNorm: Pointer | null;
  readonly keyNorm: Pointer | null;
  readonly sinks: Pointer | null;
  readonly output: Pointer;
  readonly outputBias: Pointer | null;
  readonly attentionOutputNorm: Pointer | null;
  readonly postNorm: Pointer | null;
  readonly router: Pointer | null;
  readonly routerBias: Pointer | null;
  readonly gate: Pointer;
  readonly gateBias: Pointer | null;
  readonly up: Pointer;
  readonly upBias: Pointer | null;
  readonly down: Pointer;
  readonly downBias: Pointer | null;
  readonly feedForwardOutputNorm: Pointer | null;
  readonly rotation: LayerRotation | null;
}

/** A model's weights as tensors of ggml. The graph knows nothing of where they lie and of their types. */
export interface Weights {
  readonly embeddings: Pointer;
  readonly layers: readonly LayerWeights[];
  readonly norm: Pointer;
  readonly head: Pointer;
  /** Bits of each matrix of the layers. */
  readonly bits: readonly number[];
  /** The types of the layers' matrices and of the head. */
  readonly types: readonly string[];
  /** Bytes in memory of their own; the pages of files are not counted. */
  readonly bytes: number;
  dispose(): void;
}

export interface WeightOptions {
  readonly bits: WeightBits;
  readonly headBits: WeightBits;
  /** False to leave matrices of the model's file in its pages, also where another order of their blocks is faster; true by default. */
  readonly repack?: boolean;
  /** Threads that copy; 1 by default. */
  readonly threads?: number;
}

/**
 * Opens a model's weights on a device. Matrices of at most `bits` bits keep the type of their file. On the CPU, a matrix lies in one of three places:
 *
 * - in memory of its own, in another order of its blocks, if the CPU multiplies its type faster in that order;
 * - in memory of its own if it was quantised here or its rows were reordered. GGUF orders query and key rows of `llama` for a rotation of neighbouring
 *   pairs. Here they are in Hugging Face's order, so that pages of keys and adapters do not depend on the format of the file;
 * - else in the pages of the model's file, which processes share, and which the system can drop and read again.
 *
 * A copied matrix leaves no pages of the file in the process's memory.
 *
 * @throws ModelError `malformed-weights` or `missing-file` when a file was changed or removed since the model was opened
 */
export function loadWeights(
  ggml: Ggml,
  device: GgmlDevice,
  model: LoadedModel,
  options: WeightOptions,
): Promise<Weights> {
  return openWeights(
    model.tensors,
    expectedTensors(model.config),
    () => new WeightLoader(ggml, device, model, options).load(),
    (weights) => weights.dispose(),
  );
}

/** Tensors of one context, whose memory is allocated at once. */
interface Arena {
  readonly context: Pointer;
  readonly bufferType: Pointer;
  buffer: Pointer | undefined;
}

class WeightLoader {
  readonly #ggml: Ggml;
  readonly #device: GgmlDevice;
  readonly #model: LoadedModel;
  readonly #options: WeightOptions;
  readonly #plans: readonly Plan[];
  /** By the type of their buffers. */
  readonly #arenas = new Map<Pointer, Arena>();
  readonly #files = new Map<string, { readonly map: MappedFile; readonly buffer: Pointer | undefined }>();
  readonly #mappedContext: Pointer;
  readonly #bufferType: Pointer;
  readonly #extraTypes: readonly Pointer[];
  /** Answers of {@link #supports}. */
  readonly #supported = new Map<string, boolean>();

  constructor(ggml: Ggml, device: GgmlDevice, model: LoadedModel, options: WeightOptions) {
    this.#ggml = ggml;
    this.#device = device;
    this.#model = model;
    this.#options = options;
    this.#plans = this.#plansOf();
    this.#bufferType = ggml.functions.ggml_backend_dev_buffer_type(device.handle);
    this.#extraTypes = device.isCpu && (options.repack ?? true) ? ggml.extraBufferTypes(device) : [];
    this.#mappedContext = ggml.context(this.#plans.length);
  }

  async load(): Promise<Weights> {
    try {
      return await this.#load();
    } catch (error) {
      this.#dispose();
      throw error;
    }
  }

  async #load(): Promise<Weights> {
    const { config } = this.#model;
    const made = new Map<string, Pointer>();
    const copies: Copy[] = [];
    /** The tensor that products use: a copy in another order where that is faster, else `plain`. */
    const multiplied = (plan: Plan, plain: () => Pointer): Pointer => {
      const isMatrix = plan.shape.length === 2 && plan.parts.length === 1;
      const type = this.#extraTypes.find((each) => isMatrix && this.#supports(each, plan));
      if (type === undefined) return plain();
      const tensor = this.#tensor(this.#arena(type).context, plan);
      copies.push({ tensor, plan });
      return tensor;
    };
    const plain = (plan: Plan): Pointer => {
      if (plan.place !== undefined && this.#device.isCpu) return this.#inPlace(plan, plan.place);
      const tensor = this.#tensor(this.#arena(this.#bufferType).context, plan);
      copies.push({ tensor, plan });
      return tensor;
    };
    for (const plan of this.#plans) {
      // Rows of a matrix in another order cannot be looked up. A head that is also the embeddings has a copy of its own, if at all.
      made.set(plan.name, plan.name === EMBEDDINGS ? plain(plan) : multiplied(plan, () => plain(plan)));
    }
    const embeddings = this.#plans.find(({ name }) => name === EMBEDDINGS) as Plan;
    if (config.tiedEmbeddings)
      made.set(
        HEAD,
        multiplied(embeddings, () => made.get(EMBEDDINGS) as Pointer),
      );
    const { functions } = this.#ggml;
    const { context } = this.#arena(this.#bufferType);
    const rotations = rotationsOf(config);
    const divisors = new Map(
      [...new Set(rotations)]
        .filter((rotation) => rotation !== null)
        .map((rotation) => {
          const vector = () => functions.ggml_new_tensor_1d(context, GGML_TYPE_F32, rotation.frequencies.length);
          return [rotation, { near: vector(), far: vector() }] as const;
        }),
    );
    for (const arena of this.#arenas.values()) this.#allocate(arena);
    await this.#fillAll(copies);
    const set = (tensor: Pointer, values: Float32Array) =>
      functions.ggml_backend_tensor_set(tensor, values, 0, values.byteLength);
    for (const [{ frequencies }, { near, far }] of divisors) {
      set(
        near,
        Float32Array.from(frequencies, (frequency) => 1 / frequency),
      );
      set(
        far,
        Float32Array.from(frequencies, (frequency) => 1 / remainder(ROTATION_SPAN * frequency)),
      );
    }
    const layerRotations = rotations.map((rotation): LayerRotation | null => {
      const tensors = rotation && divisors.get(rotation);
      if (!rotation || !tensors) return null;
      const { GGML_ROPE_TYPE_NEOX, GGML_ROPE_TYPE_NORMAL } = CONSTANTS;
      const mode = rotation.pairs === 'halves' ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
      return { mode, dimensions: 2 * rotation.frequencies.length, scale: rotation.scale, ...tensors };
    });
    const products = this.#plans.filter(({ name }) => /_proj\.weight$/.test(name));
    const head = config.tiedEmbeddings ? embeddings : this.#plans.find(({ name }) => name === HEAD);
    const buffers = [...this.#arenas.values()].map(({ buffer }) => buffer as Pointer);
    return {
      ...byRole(config, made, layerRotations),
      bits: products.map(({ type }) => type.bits),
      types: [...products, ...(head ? [head] : [])].map(({ type }) => type.name),
      bytes: buffers.reduce((sum, buffer) => sum + functions.ggml_backend_buffer_get_size(buffer), 0),
      dispose: () => this.#dispose(),
    };
  }

  /** The tensors to make: one for each of the model's own, and one for each kind of the experts' of a layer. */
  #plansOf(): Plan[] {
    const plans = new Map<string, Plan>();
    for (const [name, shape] of expectedTensors(this.#model.config)) {
      const plan = this.#planOf(name, shape);
      const stack = name.replace(/\bexperts\.\d+\b/, STACK);
      const known = plans.get(stack);
      plans.set(stack, known === undefined ? { ...plan, name: stack } : joined(known, plan));
    }
    return [...plans.values()];
  }

  #planOf(name: string, shape: readonly number[]): Plan {
    const info = this.#model.tensors.info(name);
    const stored = storedType(info);
    const parts = [name];
    // Vectors are added to activations and multiplied by them, which ggml does in float32 only. Routers are small, and their choices sensitive.
    if (shape.length !== 2 || name.endsWith('mlp.router.weight'))
      return { name, shape, parts, type: typeOf(GGML_TYPE_F32), place: undefined };
    const isHead = name === (this.#model.config.tiedEmbeddings ? EMBEDDINGS : HEAD);
    const { bits, headBits } = this.#options;
    // A table that is only looked up needs no conversion: ggml widens the rows that it reads.
    const wanted = name === EMBEDDINGS && !isHead ? 32 : isHead ? headBits : bits;
    const keeps = stored.bits <= wanted || wanted === 32 || (shape[1] ?? 0) % BLOCK !== 0;
    const type = keeps ? stored : typeOf(QUANTISED_TYPES[wanted]);
    const isPlace = keeps && !isBlocked(info) && !(isPacked(info) && info.rowsOfHead > 0);
    return { name, shape, parts, type, place: isPlace && info.offset % ALIGNMENT === 0 ? info : undefined };
  }

  /** True if the device multiplies this matrix by activations in memory of this type. */
  #supports(bufferType: Pointer, { type, shape }: Plan): boolean {
    const [rows = 0, columns = 0] = shape;
    // The answer depends on whether the rows are a multiple of a power of two, so a matrix of few rows gets the same one.
    const probeRows = Math.min(64, rows & -rows);
    const key = `${bufferType} ${type.number} ${probeRows} ${columns}`;
    const known = this.#supported.get(key);
    if (known !== undefined) return known;
    const { functions } = this.#ggml;
    const context = this.#ggml.context(3);
    const matrix = functions.ggml_new_tensor_2d(context, type.number, columns, probeRows);
    const buffer = functions.ggml_backend_alloc_ctx_tensors_from_buft(context, bufferType);
    let isSupported = false;
    if (buffer) {
      const inputs = functions.ggml_new_tensor_2d(context, GGML_TYPE_F32, columns, 4);
      const product = functions.ggml_mul_mat(context, matrix, inputs);
      isSupported = functions.ggml_backend_dev_supports_op(this.#device.handle, product);
      functions.ggml_backend_buffer_free(buffer);
    }
    functions.ggml_free(context);
    this.#supported.set(key, isSupported);
    return isSupported;
  }

  #tensor(context: Pointer, { type, shape, parts }: Plan): Pointer {
    const { functions } = this.#ggml;
    const [columns = 1, rows] = shape.toReversed();
    const isStack = parts.length > 1;
    if (rows === undefined)
      return isStack
        ? functions.ggml_new_tensor_2d(context, type.number, columns, parts.length)
        : functions.ggml_new_tensor_1d(context, type.number, columns);
    return isStack
      ? functions.ggml_new_tensor_3d(context, type.number, columns, rows, parts.length)
      : functions.ggml_new_tensor_2d(context, type.number, columns, rows);
  }

  #arena(bufferType: Pointer): Arena {
    const known = this.#arenas.get(bufferType);
    if (known) return known;
    const arena = {
      context: this.#ggml.context(this.#plans.length + 2 * MOST_ROTATIONS + 1),
      bufferType,
      buffer: undefined,
    };
    this.#arenas.set(bufferType, arena);
    return arena;
  }

  #allocate(arena: Arena): void {
    const { functions } = this.#ggml;
    const buffer = functions.ggml_backend_alloc_ctx_tensors_from_buft(arena.context, arena.bufferType);
    if (!buffer) throw tooLittleMemory(this.#ggml, this.#device, 'the weights');
    functions.ggml_backend_buffer_set_usage(buffer, CONSTANTS.GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    arena.buffer = buffer;
  }

  /** A tensor whose values are the bytes of its file. */
  #inPlace(plan: Plan, place: StoredRange): Pointer {
    const tensor = this.#tensor(this.#mappedContext, plan);
    const { map, buffer } = this.#file(place);
    const at = map.address + BigInt(place.offset);
    const status = this.#ggml.functions.ggml_backend_tensor_alloc(buffer as Pointer, tensor, at);
    if (status !== CONSTANTS.GGML_STATUS_SUCCESS)
      throw new Error(`ggml refused the memory of "${plan.name}" with the status ${status}`);
    return tensor;
  }

  #file(place: StoredRange) {
    const known = this.#files.get(place.file);
    if (known) return known;
    const descriptor = openUnchanged(place);
    try {
      const bytes = fstatSync(descriptor).size;
      const map = this.#ggml.map(descriptor, bytes);
      const { functions } = this.#ggml;
      const buffer = this.#device.isCpu
        ? functions.ggml_backend_dev_buffer_from_host_ptr(this.#device.handle, map.address, bytes, bytes)
        : undefined;
      if (buffer) functions.ggml_backend_buffer_set_usage(buffer, CONSTANTS.GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
      const file = { map, buffer };
      this.#files.set(place.file, file);
      return file;
    } finally {
      closeSync(descriptor);
    }
  }

  /** Copies values to the memory of their tensors, some at a time on other threads. */
  async #fillAll(copies: readonly Copy[]): Promise<void> {
    let next = 0;
    const filler = async (): Promise<void> => {
      while (next < copies.length) await this.#fill(copies[next++] as Copy);
    };
    const results = await Promise.allSettled(Array.from({ length: this.#options.threads ?? 1 }, filler));
    // A thread may still write until all have ended.
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** Copies from the mapped file, whose pages are not kept; or from values that are converted here. */
  async #fill({ tensor, plan }: Copy): Promise<void> {
    if (plan.place === undefined) {
      // Lets the process do other work between matrices that are converted on this thread.
      await setImmediate();
      let written = 0;
      for (const part of plan.parts) {
        const values = valuesOf(this.#ggml, this.#model, part, plan);
        this.#ggml.functions.ggml_backend_tensor_set(tensor, values, written, values.byteLength);
        written += values.byteLength;
      }
      return;
    }
    const { offset, bytes } = plan.place;
    const { map } = this.#file(plan.place);
    await this.#ggml.copyTo(tensor, map.address + BigInt(offset), bytes);
    map.forget(offset, bytes);
  }

  #dispose(): void {
    const { functions } = this.#ggml;
    for (const { context, buffer } of this.#arenas.values()) {
      if (buffer) functions.ggml_backend_buffer_free(buffer);
      functions.ggml_free(context);
    }
    for (const { map, buffer } of this.#files.values()) {
      if (buffer) functions.ggml_backend_buffer_free(buffer);
      map.unmap();
    }
    functions.ggml_free(this.#mappedContext);
    this.#arenas.clear();
    this.#files.clear();
  }
}

const EMBEDDINGS = 'model.embed_tokens.weight';
const HEAD = 'lm_head.weight';

/** The tensors of a model by their role, from their names in Hugging Face's files. */
function byRole(
  config: ModelConfig,
  tensors: ReadonlyMap<string, Pointer>,
  rotations: readonly (LayerRotation | null)[],
): Pick<Weights, 'embeddings' | 'layers' | 'norm' | 'head'> {
  const tensor = (name: string) => tensors.get(name) as Pointer;
  const mlp = config.experts === null ? 'mlp' : `mlp.${STACK}`;
  const layers = Array.from({ length: config.layers }, (_, index): LayerWeights => {
    const of = (name: string) => tensor(`model.layers.${index}.${name}`);
    const ifAny = (name: string) => tensors.get(`model.layers.${index}.${name}`) ?? null;
    return {
      inputNorm: ifAny('input_layernorm.weight'),
      query: of('self_attn.q_proj.weight'),
      key: of('self_attn.k_proj.weight'),
      value: of('self_attn.v_proj.weight'),
      queryBias: ifAny('self_attn.q_proj.bias'),
      keyBias: ifAny('self_attn.k_proj.bias'),
      valueBias: ifAny('self_attn.v_proj.bias'),
      queryNorm: ifAny('self_attn.q_norm.weight'),
      keyNorm: ifAny('self_attn.k_norm.weight'),
      sinks: ifAny('self_attn.sinks'),
      output: of('self_attn.o_proj.weight'),
      outputBias: ifAny('self_attn.o_proj.bias'),
      attentionOutputNorm: ifAny('self_attn.output_norm.weight'),
      postNorm: ifAny(config.norms === 'around' ? 'mlp.input_norm.weight' : 'post_attention_layernorm.weight'),
      router: ifAny('mlp.router.weight'),
      routerBias: ifAny('mlp.router.bias'),
      gate: of(`${mlp}.gate_proj.weight`),
      gateBias: ifAny(`${mlp}.gate_proj.bias`),
      up: of(`${mlp}.up_proj.weight`),
      upBias: ifAny(`${mlp}.up_proj.bias`),
      down: of(`${mlp}.down_proj.weight`),
      downBias: ifAny(`${mlp}.down_proj.bias`),
      feedForwardOutputNorm: ifAny('mlp.output_norm.weight'),
      rotation: rotations[index] ?? null,
    };
  });
  return {
    embeddings: tensor(EMBEDDINGS),
    layers,
    norm: tensor('model.norm.weight'),
    head: tensor(HEAD),
  };
}

/** A tensor with memory of its own, to fill as planned. */
interface Copy {
  readonly tensor: Pointer;
  readonly plan: Plan;
}

/** A tensor to make. */
interface Plan {
  readonly name: string;
  /** Shape of a part. */
  readonly shape: readonly number[];
  /** The model's tensors that it holds, one after another. A tensor with more than one part has a dimension more. */
  readonly parts: readonly string[];
  readonly type: TensorType;
  /** Where a file has exactly the tensor's bytes. */
  readonly place: StoredRange | undefined;
}

/** Part of the names of experts' tensors that stands for all experts. */
const STACK = 'experts.*';

/** A plan with one more part. All parts have one type: that of the file, or float32 where the file has several. */
function joined(plan: Plan, next: Plan): Plan {
  const parts = [...plan.parts, ...next.parts];
  if (next.type !== plan.type) return { ...plan, parts, type: typeOf(GGML_TYPE_F32), place: undefined };
  const { place } = plan;
  const isNext = place?.file === next.place?.file && place && place.offset + place.bytes === next.place?.offset;
  return {
    ...plan,
    parts,
    place: isNext && next.place ? { ...place, bytes: place.bytes + next.place.bytes } : undefined,
  };
}

function typeOf(number: number): TensorType {
  return TYPES[number] as TensorType;
}

const FLOATS = { F32: GGML_TYPE_F32, F16: GGML_TYPE_F16, BF16: CONSTANTS.GGML_TYPE_BF16 } as const;

/** The type that keeps a tensor's values as its file has them. */
function storedType(info: TensorInfo): TensorType {
  if (isPacked(info)) return info.type;
  if (!isBlocked(info)) return typeOf(FLOATS[info.dtype]);
  return typeOf(fitsBlocks(info) ? QUANTISED_TYPES[bitsOf(info.dtype)] : GGML_TYPE_F32);
}

/** True when ggml's blocks can hold the matrix without a change of its values, up to the width of the scales. */
function fitsBlocks({ blockSize, zeros }: BlockedTensor): boolean {
  return blockSize === BLOCK && zeros === null;
}

/** The bytes of a tensor in the type of its plan. */
function valuesOf(ggml: Ggml, { tensors, config }: LoadedModel, name: string, { shape, type }: Plan): ArrayBufferView {
  const info = tensors.info(name);
  if (isPacked(info) && type === info.type) return packedBytes(info);
  if (isBlocked(info) && type === storedType(info) && fitsBlocks(info)) {
    const packed = packBlocks(info);
    if (packed !== null) return packed;
  }
  const isShifted = config.normOffset !== 0 && name.endsWith('norm.weight');
  if (!isBlocked(info) && !isPacked(info) && type.plain === info.dtype && !isShifted) return readBytes(info);
  const values = tensors.read(name);
  if (type.number === GGML_TYPE_F32) return values;
  const [rows = 0, columns = 0] = shape;
  const quantised = new Uint8Array(rows * ggml.functions.ggml_row_size(type.number, columns));
  ggml.functions.ggml_quantize_chunk(type.number, values, quantised, 0, rows, columns, null);
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
