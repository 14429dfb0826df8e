import type { TensorType } from './convert/gguf/types.ts';
import { fileRow, halvesOfHeads } from './convert/matrices.ts';
import {
  type FloatTensor,
  floatsOf,
  isFloat,
  readBytes,
  readBytesAhead,
  readPieces,
  readTensor,
  readTensorAhead,
  type StoredRange,
  type StoredTensor,
} from './safetensors.ts';

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

/**
 * A tensor of a GGUF file in one of ggml's types; no block spans two rows.
 *
 * For the architecture `llama`, GGUF orders the rows of query and key heads for a rotation of neighbouring pairs (0 with 1, 2 with 3, …). Hugging Face
 * rotates the first half of a head against the second half. Functions of this file that read values or rows restore Hugging Face's order.
 */
export interface PackedTensor extends StoredRange {
  readonly dtype: 'packed';
  readonly type: TensorType;
  readonly shape: readonly number[];
  /** Rows of each head that the file orders for neighbouring pairs; 0 when the rows are in Hugging Face's order. */
  readonly rowsOfHead: number;
}

/** Location of a tensor's values in its files: plain floats, levels and scales, or blocks of a GGUF file. */
export type TensorInfo = FloatTensor | BlockedTensor | PackedTensor;

/** A part of a tensor in a file. */
export interface TensorPart extends StoredRange {
  /** Name of the values' type. */
  readonly dtype: string;
  readonly shape: readonly number[];
}

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

export function isPacked(info: TensorInfo): info is PackedTensor {
  return info.dtype === 'packed';
}

/** The ranges of files that together hold a tensor's values. */
export function partsOf(info: TensorInfo): readonly TensorPart[] {
  if (isPacked(info)) return [{ ...info, dtype: info.type.name }];
  return isBlocked(info) ? blockedParts(info) : [info];
}

function blockedParts({ levels, scales, zeros }: BlockedTensor): readonly StoredTensor[] {
  return zeros === null ? [levels, scales] : [levels, scales, zeros];
}

/** Reads a tensor from its file, as 32-bit floats in Hugging Face's order. */
export function readValues(info: TensorInfo): Float32Array {
  if (isPacked(info)) return decoded(info.type, packedBytes(info));
  return isBlocked(info) ? readBlocked(info) : readTensor(info);
}

/** Like {@link readValues}, but leaves the thread free while it waits for the disk. */
export async function readValuesAhead(info: TensorInfo): Promise<Float32Array> {
  if (isPacked(info)) return decoded(info.type, inOrder(info, await readBytesAhead(info)));
  return isBlocked(info) ? readBlockedAhead(info) : readTensorAhead(info);
}

/** One row of a matrix as a matrix of its own. @throws RangeError when the matrix has no such row */
export function rowOf(info: TensorInfo, index: number): TensorInfo {
  const [rows = 1, columns = 1] = info.shape;
  if (!(index >= 0 && index < rows)) throw new RangeError(`Row ${index} of a matrix of ${rows} rows.`);
  const partOf = <T extends StoredRange>(part: T, row = index): T => {
    const bytes = part.bytes / rows;
    return { ...part, offset: part.offset + row * bytes, bytes };
  };
  if (isPacked(info)) return { ...partOf(info, fileRow(index, info.rowsOfHead)), shape: [1, columns], rowsOfHead: 0 };
  if (!isBlocked(info)) return partOf(info);
  const { levels, scales, zeros } = info;
  return { ...info, levels: partOf(levels), scales: partOf(scales), zeros: zeros && partOf(zeros) };
}

/**
 * The bytes of a packed tensor in pieces of whole rows, about `pieceBytes` each, with the rows in Hugging Face's order. A piece is larger if a single row
 * is, or the rows of a head that are reordered.
 */
export function* packedPieces(info: PackedTensor, pieceBytes: number): Generator<Uint8Array<ArrayBuffer>> {
  const unit = rowBytesOf(info) * (info.rowsOfHead || 1);
  for (const piece of readPieces(info, unit * Math.max(1, Math.floor(pieceBytes / unit)))) yield inOrder(info, piece);
}

/** All bytes of a packed tensor, with the rows in Hugging Face's order. */
export function packedBytes(info: PackedTensor): Uint8Array<ArrayBuffer> {
  return inOrder(info, readBytes(info));
}

/** Whole rows, or heads, of a packed tensor in Hugging Face's order. */
function inOrder(info: PackedTensor, rows: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return info.rowsOfHead > 0 ? halvesOfHeads(rows, rowBytesOf(info), info.rowsOfHead) : rows;
}

function rowBytesOf({ shape, bytes }: PackedTensor): number {
  return bytes / shape.slice(0, -1).reduce((product, dimension) => product * dimension, 1);
}

/** The values of whole blocks of a type, as 32-bit floats. */
export function decoded({ plain, decode, bytes, values }: TensorType, source: Uint8Array<ArrayBuffer>): Float32Array {
  if (decode === undefined) return floatsOf(source, plain ?? 'F32');
  const target = new Float32Array((source.length / bytes) * values);
  decode(new DataView(source.buffer, source.byteOffset, source.byteLength), target);
  return target;
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
