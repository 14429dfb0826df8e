import { type FloatTensor, isFloat, readBytes, readBytesAhead, type StoredTensor } from './safetensors.ts';

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
