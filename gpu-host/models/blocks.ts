import { type FloatTensor, isFloat, readBytes, type StoredTensor } from './safetensors.ts';

/**
 * A matrix whose rows are cut into blocks of columns, each with a scale of its own. A value is `(level − 2^(bits − 1)) × scale`. Levels
 * are unsigned; two levels of 4 bits share a byte, the first in its low half. ONNX Runtime's `MatMulNBits` multiplies them as they are.
 *
 * A file has such a matrix as two tensors: `NAME.int8` or `NAME.int4` (U8, `[rows, blocks, bytes of a block]`) and `NAME.scales` (F32,
 * `[rows, blocks]`).
 */
export interface BlockedTensor {
  readonly dtype: 'int8' | 'int4';
  /** Rows and columns. */
  readonly shape: readonly number[];
  readonly blockSize: BlockSize;
  readonly levels: StoredTensor;
  readonly scales: StoredTensor;
}

/** Columns of a block. */
export type BlockSize = 16 | 32;

/** Place of a tensor's values: plain floats, or levels and scales. */
export type TensorInfo = FloatTensor | BlockedTensor;

/** Values as levels and scales; `levels` and `scales` are filled block by block. */
export interface Blocks {
  readonly levels: Uint8Array;
  readonly scales: Float32Array;
}

export function bitsOf(dtype: BlockedTensor['dtype']): 8 | 4 {
  return dtype === 'int8' ? 8 : 4;
}

export function isBlocked(info: TensorInfo): info is BlockedTensor {
  return info.dtype === 'int8' || info.dtype === 'int4';
}

/** The values of blocks: each product is rounded once, to 32 bits. */
export function dequantize({ levels, scales }: Blocks, dtype: BlockedTensor['dtype'], blockSize: number): Float32Array {
  const values = new Float32Array(scales.length * blockSize);
  for (let i = 0; i < values.length; i++) {
    const level =
      dtype === 'int8' ? (levels[i] as number) - 128 : (((levels[i >> 1] as number) >> ((i & 1) * 4)) & 15) - 8;
    values[i] = level * (scales[Math.floor(i / blockSize)] as number);
  }
  return values;
}

/** Reads a matrix from its file, as 32-bit floats. */
export function readBlocked({ dtype, blockSize, levels, scales }: BlockedTensor): Float32Array {
  return dequantize(
    { levels: readBytes(levels), scales: new Float32Array(readBytes(scales).buffer) },
    dtype,
    blockSize,
  );
}

/** Names of the tensors that hold a matrix in blocks. */
export function blockedNames(name: string, dtype: BlockedTensor['dtype']): { levels: string; scales: string } {
  return { levels: `${name}.${dtype}`, scales: `${name}.scales` };
}

/** The float tensors of a file or of shards, and the matrices in blocks under their own names. Other types need a conversion. */
export function tensorsOf(stored: ReadonlyMap<string, StoredTensor>): Map<string, TensorInfo> {
  const tensors = new Map<string, TensorInfo>();
  for (const [name, tensor] of stored) {
    if (isFloat(tensor)) tensors.set(name, tensor);
    else if (tensor.dtype === 'U8') {
      const [, matrix, dtype] = /^(.+)\.(int8|int4)$/.exec(name) ?? [];
      const blocked =
        matrix === undefined ? null : blockedOf(tensor, dtype as 'int8' | 'int4', stored.get(`${matrix}.scales`));
      if (blocked !== null) tensors.set(matrix as string, blocked);
    }
  }
  return tensors;
}

function blockedOf(levels: StoredTensor, dtype: BlockedTensor['dtype'], scales?: StoredTensor): BlockedTensor | null {
  const [rows = 0, blocks = 0, bytes = 0] = levels.shape;
  const blockSize = (bytes * 8) / bitsOf(dtype);
  const fits = scales?.dtype === 'F32' && String(scales.shape) === String([rows, blocks]) && levels.shape.length === 3;
  if (!fits || (blockSize !== 16 && blockSize !== 32)) return null;
  return { dtype, shape: [rows, blocks * blockSize], blockSize, levels, scales };
}
