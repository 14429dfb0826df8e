import { closeSync, openSync, readSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { bitsOf, blockedNames, configToJson, type ModelConfig } from '../../config.ts';
import { ModelError } from '../../errors.ts';
import { expectedTensors } from '../../load.ts';
import { type TensorSource, writeSafetensors } from '../../safetensors.ts';
import { loadTokenizer } from '../../tokenizer.ts';
import { halvesOfHeads } from '../matrices.ts';
import { ggufConfig } from './config.ts';
import { type GgufTensor, readGgufHeader } from './header.ts';
import { ggufTokenizer, specialIds } from './tokenizer.ts';
import type { ExactBlocks } from './types.ts';

/** Bytes that one piece of a tensor takes as 32-bit floats. A piece is larger if a single row is, or the rows of a head that are reordered. */
const PIECE_BYTES = 4 << 20;

/** Hugging Face's name → GGUF's name, for tensors of a layer, without the prefix that names the layer. */
const IN_LAYER: Readonly<Record<string, string>> = {
  'input_layernorm.weight': 'attn_norm.weight',
  'self_attn.q_proj.weight': 'attn_q.weight',
  'self_attn.k_proj.weight': 'attn_k.weight',
  'self_attn.v_proj.weight': 'attn_v.weight',
  'self_attn.q_proj.bias': 'attn_q.bias',
  'self_attn.k_proj.bias': 'attn_k.bias',
  'self_attn.v_proj.bias': 'attn_v.bias',
  'self_attn.q_norm.weight': 'attn_q_norm.weight',
  'self_attn.k_norm.weight': 'attn_k_norm.weight',
  'self_attn.o_proj.weight': 'attn_output.weight',
  'post_attention_layernorm.weight': 'ffn_norm.weight',
  'mlp.gate_proj.weight': 'ffn_gate.weight',
  'mlp.up_proj.weight': 'ffn_up.weight',
  'mlp.down_proj.weight': 'ffn_down.weight',
};
const OUTSIDE_LAYERS: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};
/** The tensor of the numbers by which llama.cpp divides the rotation's frequencies. */
const DIVISORS = 'rope_freqs.weight';

/**
 * Converts a GGUF file to Hugging Face layout in `directory`. Values in blocks become Pie's own blocks where these can hold exactly the same
 * values, else 32-bit floats. Other values keep their type.
 *
 * For the architecture `llama`, GGUF orders the query and key rows for a rotation of neighbouring pairs (0 with 1, 2 with 3, …). Hugging Face
 * rotates the first half of a head against the second half; the converter restores Hugging Face's order.
 *
 * @throws ModelError `malformed-weights`, `malformed-config`, `malformed-tokenizer`, `missing-tensor`, `wrong-shape` or `unsupported-model`
 */
export async function convertGguf(
  file: string,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  const header = readGgufHeader(file);
  const fd = openSync(file, 'r');
  try {
    const divisors = header.tensors.get(DIVISORS);
    const config = ggufConfig(header, divisors ? readDivisors(fd, divisors) : null, specialIds(header.metadata));
    const sources = sourcesOf(fd, config, header.tensors);
    const { tokenizer, settings } = ggufTokenizer(header.metadata, config);
    const json = (name: string, value: unknown) =>
      writeFile(join(directory, name), `${JSON.stringify(value, null, 1)}\n`);
    await json('config.json', configToJson(config));
    // No indentation here: it would double the text of a million merges.
    await writeFile(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
    await json('tokenizer_config.json', settings);
    // A tokenizer that cannot be used is refused before gigabytes of weights are written.
    await loadTokenizer(directory);
    await writeSafetensors(join(directory, 'model.safetensors'), sources, onProgress);
  } finally {
    closeSync(fd);
  }
}

function sourcesOf(fd: number, config: ModelConfig, tensors: ReadonlyMap<string, GgufTensor>): TensorSource[] {
  const unused = new Set(tensors.keys());
  unused.delete(DIVISORS);
  const sources = expectedTensors(config).flatMap(([name, shape]): TensorSource[] => {
    const [, layer, inLayer = ''] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
    const stored =
      layer === undefined ? (OUTSIDE_LAYERS[name] ?? name) : `blk.${layer}.${IN_LAYER[inLayer] ?? inLayer}`;
    const tensor = tensors.get(stored);
    if (tensor === undefined) throw new ModelError('missing-tensor', `the GGUF file lacks the tensor "${stored}"`);
    if (tensor.shape.length !== shape.length || tensor.shape.some((dimension, i) => dimension !== shape[i])) {
      throw new ModelError(
        'wrong-shape',
        `"${stored}" has shape [${tensor.shape.join(', ')}], the file's own sizes imply [${shape.join(', ')}]`,
      );
    }
    unused.delete(stored);
    const hasNeighbourPairs = config.family === 'llama' && /\.(q|k)_proj\.weight$/.test(name);
    const rowsOfHead = hasNeighbourPairs ? config.headDim : 0;
    const { exact, plain = 'F32' } = tensor.type;
    if (exact !== undefined && shape.length === 2) return inBlocks(fd, name, tensor, exact, rowsOfHead);
    return [{ name, shape, dtype: plain, data: () => values(fd, tensor, rowsOfHead) }];
  });
  const [first] = unused;
  if (first !== undefined) {
    throw new ModelError('unsupported-model', `the GGUF file has a tensor "${first}", which Pie does not compute`);
  }
  return sources;
}

/** The two tensors of a matrix in blocks. Each of them reads the file separately and in pieces, so that memory never holds the whole matrix. */
function inBlocks(
  fd: number,
  name: string,
  tensor: GgufTensor,
  { dtype, blockSize, levels, scales }: ExactBlocks,
  rowsOfHead: number,
): TensorSource[] {
  const [rows = 0, columns = 0] = tensor.shape;
  const shape = [rows, columns / blockSize];
  const names = blockedNames(name, dtype);
  const extractedBytes = function* (extract: ExactBlocks['levels' | 'scales']): Generator<Uint8Array> {
    for (const piece of pieces(fd, tensor, rowsOfHead)) yield bytesOf(extract(viewOf(piece)));
  };
  const levelsShape = [...shape, (blockSize * bitsOf(dtype)) / 8];
  return [
    { name: names.levels, shape: levelsShape, dtype: 'U8', data: () => extractedBytes(levels) },
    { name: names.scales, shape, data: () => extractedBytes(scales) },
  ];
}

/** A tensor's values as safetensors stores them. */
function* values(fd: number, tensor: GgufTensor, rowsOfHead: number): Generator<Uint8Array> {
  const { type } = tensor;
  for (const piece of pieces(fd, tensor, rowsOfHead)) {
    if (type.decode === undefined) {
      yield piece;
      continue;
    }
    const decoded = new Float32Array((piece.length / type.bytes) * type.values);
    type.decode(viewOf(piece), decoded);
    yield bytesOf(decoded);
  }
}

/** A tensor's bytes, some rows at a time. Puts the rows of each head into Hugging Face's order; with a `rowsOfHead` of 0, keeps the file's order. */
function* pieces(fd: number, { shape, offset, bytes }: GgufTensor, rowsOfHead: number): Generator<Uint8Array> {
  const columns = shape.at(-1) ?? 1;
  const rows = shape.slice(0, -1).reduce((product, dimension) => product * dimension, 1);
  const rowBytes = bytes / rows;
  const unit = rowsOfHead || 1;
  const step = unit * Math.max(1, Math.floor(PIECE_BYTES / (4 * columns * unit)));
  for (let row = 0; row < rows; row += step) {
    const read = readAt(fd, offset + row * rowBytes, Math.min(step, rows - row) * rowBytes);
    yield rowsOfHead > 0 ? halvesOfHeads(read, rowBytes, rowsOfHead) : read;
  }
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

function bytesOf({ buffer, byteOffset, byteLength }: Uint8Array | Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function readDivisors(fd: number, { type, shape, offset, bytes }: GgufTensor): Float32Array {
  if (type.plain !== 'F32' || shape.length !== 1 || bytes > PIECE_BYTES)
    throw new ModelError('malformed-weights', `"${DIVISORS}" is not a short list of 32-bit floats`);
  return new Float32Array(readAt(fd, offset, bytes).buffer);
}

function readAt(fd: number, offset: number, bytes: number): Uint8Array<ArrayBuffer> {
  const buffer = new Uint8Array(bytes);
  for (let done = 0; done < bytes; ) {
    const read = readSync(fd, buffer, done, bytes - done, offset + done);
    if (read === 0) throw new ModelError('malformed-weights', `the GGUF file ends before byte ${offset + bytes}`);
    done += read;
  }
  return buffer;
}
