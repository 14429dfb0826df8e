import type { LoadedModel } from '#gpu-host/models/load.ts';

/** A metadata entry: key, type and value; a list has the type of its elements. */
export type Entry = readonly [
  key: string,
  type: 'u32' | 'i32' | 'f32' | 'bool' | 'text',
  value: Scalar | readonly Scalar[],
];
type Scalar = number | boolean | string;

/** A tensor to write. */
export interface Tensor {
  readonly name: string;
  /** Outermost dimension first. */
  readonly shape: readonly number[];
  /** Type of the values, by ggml's number. */
  readonly type: number;
  readonly bytes: Buffer;
  /** Offset that the header claims; by default the tensor follows the previous one. */
  readonly offset?: number;
}

export interface FileParts {
  readonly metadata: readonly Entry[];
  readonly tensors: readonly Tensor[];
  readonly version?: number;
  /** Count of tensors that the header claims; by default the true count. */
  readonly tensorCount?: number | bigint;
  /** Count of metadata entries that the header claims; by default the true count. */
  readonly keyCount?: number | bigint;
}

const ENTRY_TYPES = { u32: 4, i32: 5, f32: 6, bool: 7, text: 8 } as const;
const LIST = 9;
const BLOCK = 32;
const ALIGNMENT = 32;

/** The bytes of a GGUF file. Checks nothing, so that tests can write malformed files. */
export function ggufFile({ metadata, tensors, version = 3, tensorCount, keyCount }: FileParts): Buffer {
  const header = new Bytes();
  header.raw(Buffer.from('GGUF'));
  header.scalar('u32', version);
  header.u64(tensorCount ?? tensors.length);
  header.u64(keyCount ?? metadata.length);
  for (const [key, type, value] of metadata) {
    header.text(key);
    const list = typeof value === 'object' ? value : null;
    header.scalar('u32', list ? LIST : ENTRY_TYPES[type]);
    if (list) {
      header.scalar('u32', ENTRY_TYPES[type]);
      header.u64(list.length);
    }
    for (const each of list ?? [value as Scalar]) header.scalar(type, each);
  }
  let offset = 0;
  for (const { name, shape, type, bytes, offset: givenOffset } of tensors) {
    header.text(name);
    header.scalar('u32', shape.length);
    // GGUF lists dimensions innermost first.
    for (const size of shape.toReversed()) header.u64(size);
    header.scalar('u32', type);
    header.u64(givenOffset ?? offset);
    offset += aligned(bytes.length);
  }
  const parts = [header.take()];
  for (const { bytes } of tensors) parts.push(bytes, Buffer.alloc(aligned(bytes.length) - bytes.length));
  return Buffer.concat(parts);
}

/** The parts of a model as llama.cpp splits it: the first one has the metadata. */
export function splitParts({ metadata, tensors }: FileParts, count: number): FileParts[] {
  const size = Math.ceil(tensors.length / count);
  return Array.from({ length: count }, (_, part) => ({
    metadata: [
      ...(part === 0 ? metadata : []),
      ['split.no', 'u32', part],
      ['split.count', 'u32', count],
      ['split.tensors.count', 'i32', tensors.length],
    ],
    tensors: tensors.slice(part * size, (part + 1) * size),
  }));
}

/** Encoding of the matrices of {@link modelParts}; norms and biases are 32-bit floats, as llama.cpp demands. */
export type Encoding = 'F32' | 'F16' | 'BF16' | 'Q8_0' | 'Q4_0';

/**
 * A model of the Llama family in GGUF. For the architecture `llama`, llama.cpp rotates interleaved pairs instead of Hugging Face's halves, so
 * this function reorders the query and key rows for llama.cpp.
 *
 * @param encoding the encoding of every matrix, or a function that gives it for a matrix by the matrix's name in the file
 * @param tokenizer metadata entries of a tokenizer; by default a vocabulary of generated names
 */
export function modelParts(
  model: LoadedModel,
  encoding: Encoding | ((tensor: string) => Encoding),
  tokenizer?: readonly Entry[],
): FileParts {
  const { config, tensors } = model;
  const encodingOf = typeof encoding === 'function' ? encoding : () => encoding;
  const list: Tensor[] = [];
  const add = (name: string, source: string, heads = 0): void => {
    const { shape } = tensors.info(source);
    const values = tensors.read(source);
    const ordered = heads > 0 && config.family === 'llama' ? interleave(values, heads, shape) : values;
    list.push({ name, shape, ...encoded(ordered, shape.length === 1 ? 'F32' : encodingOf(name)) });
  };
  add('token_embd.weight', 'model.embed_tokens.weight');
  for (let layer = 0; layer < config.layers; layer++) {
    const from = `model.layers.${layer}`;
    const to = `blk.${layer}`;
    add(`${to}.attn_norm.weight`, `${from}.input_layernorm.weight`);
    for (const [part, heads] of Object.entries({ q: config.heads, k: config.kvHeads, v: 0 })) {
      add(`${to}.attn_${part}.weight`, `${from}.self_attn.${part}_proj.weight`, heads);
      if (config.attentionBias) add(`${to}.attn_${part}.bias`, `${from}.self_attn.${part}_proj.bias`);
      if (config.queryKeyNorm && part !== 'v')
        add(`${to}.attn_${part}_norm.weight`, `${from}.self_attn.${part}_norm.weight`);
    }
    add(`${to}.attn_output.weight`, `${from}.self_attn.o_proj.weight`);
    add(`${to}.ffn_norm.weight`, `${from}.post_attention_layernorm.weight`);
    for (const part of ['gate', 'up', 'down']) add(`${to}.ffn_${part}.weight`, `${from}.mlp.${part}_proj.weight`);
  }
  add('output_norm.weight', 'model.norm.weight');
  if (!config.tiedEmbeddings) add('output.weight', 'lm_head.weight');
  return { metadata: [...metadataOf(model), ...(tokenizer ?? plainTokenizer(config.vocabularySize))], tensors: list };
}

function metadataOf({ config }: LoadedModel): Entry[] {
  const { family } = config;
  return [
    ['general.architecture', 'text', family],
    ['general.name', 'text', 'written'],
    [`${family}.context_length`, 'u32', config.contextLength],
    [`${family}.embedding_length`, 'u32', config.hiddenSize],
    [`${family}.block_count`, 'u32', config.layers],
    [`${family}.feed_forward_length`, 'u32', config.intermediateSize],
    [`${family}.attention.head_count`, 'u32', config.heads],
    [`${family}.attention.head_count_kv`, 'u32', config.kvHeads],
    [`${family}.attention.key_length`, 'u32', config.headDim],
    [`${family}.attention.value_length`, 'u32', config.headDim],
    [`${family}.attention.layer_norm_rms_epsilon`, 'f32', config.rmsNormEpsilon],
    [`${family}.rope.dimension_count`, 'u32', config.headDim],
    [`${family}.rope.freq_base`, 'f32', config.ropeTheta],
    [`${family}.vocab_size`, 'u32', config.vocabularySize],
  ];
}

/** Types of tokens by their number in `tokenizer.ggml.token_type`. */
export const TOKEN = { normal: 1, unknown: 2, control: 3, added: 4, unused: 5, byte: 6 } as const;

/** Llama's layout: 3 special tokens, 256 byte tokens if the vocabulary has room, then ordinary tokens, each with a unique name. */
export function plainTokenizer(size: number): Entry[] {
  const firstByte = 3;
  const bytesEnd = firstByte + 256;
  const isByte = (id: number) => size >= bytesEnd && id >= firstByte && id < bytesEnd;
  const name = (id: number) =>
    isByte(id) ? `<0x${(id - firstByte).toString(16).toUpperCase().padStart(2, '0')}>` : `token${id}`;
  const type = (id: number) => {
    if (id === 0) return TOKEN.unknown;
    if (id < firstByte) return TOKEN.control;
    return isByte(id) ? TOKEN.byte : TOKEN.normal;
  };
  const ids = Array.from({ length: size }, (_, id) => id);
  return [
    ['tokenizer.ggml.model', 'text', 'llama'],
    ['tokenizer.ggml.bos_token_id', 'u32', 1],
    ['tokenizer.ggml.eos_token_id', 'u32', 2],
    ['tokenizer.ggml.tokens', 'text', ids.map(name)],
    ['tokenizer.ggml.scores', 'f32', ids.map((id) => -id)],
    ['tokenizer.ggml.token_type', 'i32', ids.map(type)],
  ];
}

/** Reorders the rows of each head from halves (i, i + d/2) to pairs (2i, 2i + 1). */
export function interleave(weights: Float32Array, heads: number, shape: readonly number[]): Float32Array {
  const columns = shape[1] as number;
  const headDim = (shape[0] as number) / heads;
  const half = headDim / 2;
  const result = new Float32Array(weights.length);
  for (let head = 0; head < heads; head++) {
    for (let i = 0; i < headDim; i++) {
      const from = (head * headDim + (i % 2) * half + (i >> 1)) * columns;
      result.set(weights.subarray(from, from + columns), (head * headDim + i) * columns);
    }
  }
  return result;
}

function encoded(values: Float32Array, encoding: Encoding): { type: number; bytes: Buffer } {
  const bytesOf = (array: Float32Array | Float16Array | Uint16Array) =>
    Buffer.from(array.buffer, array.byteOffset, array.byteLength);
  switch (encoding) {
    case 'F32':
      return { type: 0, bytes: bytesOf(values) };
    case 'F16':
      return { type: 1, bytes: bytesOf(Float16Array.from(values)) };
    case 'BF16': {
      const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
      return { type: 30, bytes: bytesOf(Uint16Array.from(words, (word) => word >>> 16)) };
    }
    // A block has a scale of 2 bytes and 32 levels of one byte.
    case 'Q8_0':
      return {
        type: 8,
        bytes: quantised(values, 34, 127, (out, at, i, scaled) => out.writeInt8(Math.round(scaled), at + i)),
      };
    // A block has a scale of 2 bytes and 16 bytes of two levels each.
    case 'Q4_0':
      return {
        type: 2,
        bytes: quantised(values, 18, -8, (out, at, i, scaled) => {
          // Rounds, and adds the middle level 8.
          const nibble = Math.max(0, Math.min(15, Math.floor(scaled + 8.5)));
          const byte = at + (i % 16);
          out[byte] = (out[byte] as number) | (i < 16 ? nibble : nibble << 4);
        }),
      };
  }
}

/**
 * Blocks with a 16-bit scale, chosen so that the value of largest magnitude becomes `extremeLevel`. If `extremeLevel` is positive, the scale is
 * positive, too, so a negative value of largest magnitude becomes `-extremeLevel`.
 *
 * @param write writes the level of value `i`; the block's levels begin at the byte `at`
 */
function quantised(
  values: Float32Array,
  blockBytes: number,
  extremeLevel: number,
  write: (out: Buffer, at: number, i: number, scaled: number) => void,
): Buffer {
  const out = Buffer.alloc((values.length / BLOCK) * blockBytes);
  for (let block = 0; block * BLOCK < values.length; block++) {
    const part = values.subarray(block * BLOCK, (block + 1) * BLOCK);
    let largest = 0;
    for (const value of part) if (Math.abs(value) > Math.abs(largest)) largest = value;
    const scale = (extremeLevel > 0 ? Math.abs(largest) : largest) / extremeLevel;
    const at = block * blockBytes;
    out.writeUInt16LE(new Uint16Array(Float16Array.of(scale).buffer)[0] as number, at);
    const inverse = scale === 0 ? 0 : 1 / scale;
    for (let i = 0; i < BLOCK; i++) write(out, at + 2, i, (part[i] as number) * inverse);
  }
  return out;
}

class Bytes {
  #parts: Buffer[] = [];
  #length = 0;

  scalar(type: keyof typeof ENTRY_TYPES, value: Scalar): void {
    if (type === 'text') this.text(String(value));
    else if (type === 'bool') this.raw(Buffer.of(Number(value)));
    else {
      const bytes = Buffer.alloc(4);
      if (type === 'f32') bytes.writeFloatLE(Number(value));
      else if (type === 'i32') bytes.writeInt32LE(Number(value));
      else bytes.writeUInt32LE(Number(value));
      this.raw(bytes);
    }
  }

  u64(value: number | bigint): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(value));
    this.raw(bytes);
  }

  text(value: string): void {
    const bytes = Buffer.from(value);
    this.u64(bytes.length);
    this.raw(bytes);
  }

  raw(bytes: Buffer): void {
    this.#parts.push(bytes);
    this.#length += bytes.length;
  }

  /** All bytes of the header, padded to the alignment at which the weights begin. */
  take(): Buffer {
    return Buffer.concat(this.#parts, aligned(this.#length));
  }
}

function aligned(offset: number): number {
  return Math.ceil(offset / ALIGNMENT) * ALIGNMENT;
}
