import { open } from 'node:fs/promises';
import type { LoadedModel } from '#gpu-host/models/load.ts';

export type GgufBits = 32 | 8 | 4;

/** llama.cpp's tensor types by bits, with the bytes of 32 values. */
const TYPES = {
  32: { id: 0, bytes: 128 },
  8: { id: 8, bytes: 34 },
  4: { id: 2, bytes: 18 },
} as const;
const BLOCK = 32;
const ALIGNMENT = 32;

/**
 * Writes a Llama-family model as GGUF: F32, Q8_0 or Q4_0 matrices, float norms, and generated names as the
 * vocabulary (the benchmark passes token ids). Query and key rows are reordered from
 * Hugging Face's halves to llama.cpp's interleaved pairs, so that the file computes the same function.
 */
export async function writeGguf(model: LoadedModel, bits: GgufBits, file: string): Promise<void> {
  const tensors = ggufTensors(model);
  const header = new Bytes();
  header.text('GGUF', false);
  header.u32(3);
  header.u64(tensors.length);
  const metadata = metadataOf(model);
  // The vocabulary adds three arrays.
  header.u64(metadata.length + 3);
  for (const [key, type, value] of metadata) {
    header.text(key);
    header.u32({ u32: 4, f32: 6, text: 8 }[type]);
    if (type === 'u32') header.u32(value as number);
    else if (type === 'f32') header.f32(value as number);
    else header.text(value as string);
  }
  writeVocabulary(header, model.config.vocabularySize);
  let offset = 0;
  for (const { name, shape } of tensors) {
    const type = TYPES[shape.length === 1 ? 32 : bits];
    header.text(name);
    header.u32(shape.length);
    // GGUF lists dimensions innermost first.
    for (const size of shape.toReversed()) header.u64(size);
    header.u32(type.id);
    header.u64(offset);
    offset = aligned(offset + (product(shape) / BLOCK) * type.bytes);
  }
  header.pad(ALIGNMENT);
  const handle = await open(file, 'w');
  try {
    await handle.write(header.take());
    for (const { shape, read } of tensors) {
      const bytes = encode(read(), shape.length === 1 ? 32 : bits);
      await handle.write(bytes);
      const gap = aligned(bytes.length) - bytes.length;
      if (gap > 0) await handle.write(Buffer.alloc(gap));
    }
  } finally {
    await handle.close();
  }
}

interface GgufTensor {
  readonly name: string;
  readonly shape: readonly number[];
  read(): Float32Array;
}

function ggufTensors({ config, tensors }: LoadedModel): GgufTensor[] {
  const list: GgufTensor[] = [];
  const add = (name: string, source: string, heads = 0): void => {
    const { shape } = tensors.info(source);
    const read = () => (heads > 0 ? interleave(tensors.read(source), heads, shape) : tensors.read(source));
    list.push({ name, shape, read });
  };
  add('token_embd.weight', 'model.embed_tokens.weight');
  for (let layer = 0; layer < config.layers; layer++) {
    const from = `model.layers.${layer}`;
    const to = `blk.${layer}`;
    add(`${to}.attn_norm.weight`, `${from}.input_layernorm.weight`);
    add(`${to}.attn_q.weight`, `${from}.self_attn.q_proj.weight`, config.heads);
    add(`${to}.attn_k.weight`, `${from}.self_attn.k_proj.weight`, config.kvHeads);
    add(`${to}.attn_v.weight`, `${from}.self_attn.v_proj.weight`);
    add(`${to}.attn_output.weight`, `${from}.self_attn.o_proj.weight`);
    add(`${to}.ffn_norm.weight`, `${from}.post_attention_layernorm.weight`);
    for (const part of ['gate', 'up', 'down']) add(`${to}.ffn_${part}.weight`, `${from}.mlp.${part}_proj.weight`);
  }
  add('output_norm.weight', 'model.norm.weight');
  if (!config.tiedEmbeddings) add('output.weight', 'lm_head.weight');
  return list;
}

function metadataOf({ config }: LoadedModel): [key: string, type: 'u32' | 'f32' | 'text', value: number | string][] {
  return [
    ['general.architecture', 'text', 'llama'],
    ['general.name', 'text', 'bench'],
    ['llama.context_length', 'u32', config.contextLength],
    ['llama.embedding_length', 'u32', config.hiddenSize],
    ['llama.block_count', 'u32', config.layers],
    ['llama.feed_forward_length', 'u32', config.intermediateSize],
    ['llama.attention.head_count', 'u32', config.heads],
    ['llama.attention.head_count_kv', 'u32', config.kvHeads],
    ['llama.attention.layer_norm_rms_epsilon', 'f32', config.rmsNormEpsilon],
    ['llama.rope.dimension_count', 'u32', config.headDim],
    ['llama.rope.freq_base', 'f32', config.ropeTheta],
    ['llama.vocab_size', 'u32', config.vocabularySize],
    ['tokenizer.ggml.model', 'text', 'llama'],
    ['tokenizer.ggml.bos_token_id', 'u32', 1],
    ['tokenizer.ggml.eos_token_id', 'u32', 2],
  ];
}

/** Types of a vocabulary's entries. */
const VOCABULARY = { normal: 1, unknown: 2, control: 3, byte: 6 } as const;
const ARRAY = 9;

/** Llama's layout: three special tokens, 256 bytes, then ordinary tokens, each with a unique name. */
function writeVocabulary(header: Bytes, size: number): void {
  const isByte = (id: number) => id >= 3 && id < 259;
  const array = (key: string, elementType: number, write: (id: number) => void): void => {
    header.text(key);
    header.u32(ARRAY);
    header.u32(elementType);
    header.u64(size);
    for (let id = 0; id < size; id++) write(id);
  };
  array('tokenizer.ggml.tokens', 8, (id) =>
    header.text(isByte(id) ? `<0x${(id - 3).toString(16).toUpperCase().padStart(2, '0')}>` : `token${id}`),
  );
  array('tokenizer.ggml.scores', 6, (id) => header.f32(-id));
  array('tokenizer.ggml.token_type', 5, (id) =>
    header.u32(
      id === 0 ? VOCABULARY.unknown : id < 3 ? VOCABULARY.control : isByte(id) ? VOCABULARY.byte : VOCABULARY.normal,
    ),
  );
}

/** Reorders the rows of each head from halves (i, i + d/2) to pairs (2i, 2i + 1). */
function interleave(weights: Float32Array, heads: number, shape: readonly number[]): Float32Array {
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

function encode(values: Float32Array, bits: GgufBits): Buffer {
  if (bits === 32) return Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  const { bytes } = TYPES[bits];
  const out = Buffer.alloc((values.length / BLOCK) * bytes);
  const half = new Float16Array(1);
  const halfBits = new Uint16Array(half.buffer);
  for (let block = 0; block * BLOCK < values.length; block++) {
    const part = values.subarray(block * BLOCK, (block + 1) * BLOCK);
    let largest = 0;
    for (const value of part) if (Math.abs(value) > Math.abs(largest)) largest = value;
    const scale = bits === 8 ? Math.abs(largest) / 127 : largest / -8;
    half[0] = scale;
    const at = block * bytes;
    out.writeUInt16LE(halfBits[0] as number, at);
    const inverse = scale === 0 ? 0 : 1 / scale;
    for (let i = 0; i < BLOCK; i++) {
      const scaled = (part[i] as number) * inverse;
      if (bits === 8) out.writeInt8(Math.max(-127, Math.min(127, Math.round(scaled))), at + 2 + i);
      else {
        const nibble = Math.max(0, Math.min(15, Math.floor(scaled + 8.5)));
        const byte = at + 2 + (i % 16);
        out[byte] = (out[byte] as number) | (i < 16 ? nibble : nibble << 4);
      }
    }
  }
  return out;
}

class Bytes {
  #parts: Buffer[] = [];
  #length = 0;

  u32(value: number): void {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    this.#push(bytes);
  }

  u64(value: number): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(value));
    this.#push(bytes);
  }

  f32(value: number): void {
    const bytes = Buffer.alloc(4);
    bytes.writeFloatLE(value);
    this.#push(bytes);
  }

  text(value: string, withLength = true): void {
    const bytes = Buffer.from(value);
    if (withLength) this.u64(bytes.length);
    this.#push(bytes);
  }

  pad(alignment: number): void {
    this.#push(Buffer.alloc((alignment - (this.#length % alignment)) % alignment));
  }

  take(): Buffer {
    return Buffer.concat(this.#parts);
  }

  #push(bytes: Buffer): void {
    this.#parts.push(bytes);
    this.#length += bytes.length;
  }
}

function product(shape: readonly number[]): number {
  return shape.reduce((total, size) => total * size, 1);
}

function aligned(offset: number): number {
  return Math.ceil(offset / ALIGNMENT) * ALIGNMENT;
}
