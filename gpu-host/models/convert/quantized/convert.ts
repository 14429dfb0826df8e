import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ModelConfig, parseConfig } from '../../config.ts';
import { ModelError } from '../../errors.ts';
import { expectedTensors, readJson, readOptionalJson, storedTensors } from '../../load.ts';
import {
  isFloat,
  readBytes,
  readPieces,
  type StoredTensor,
  type TensorSource,
  writeSafetensors,
} from '../../safetensors.ts';
import { loadTokenizer } from '../../tokenizer.ts';
import { copySideFiles } from '../onnx-q8.ts';
import { float8Source, type GroupedMatrix, groupedSources, groupingOf } from './blocks.ts';
import { type Awq, type Gptq, type Packed, parseQuantization, type Quantization } from './config.ts';
import { expectStored, MISMATCH, Stored } from './stored.ts';

const PIECE_BYTES = 4 << 20;

/**
 * Converts a quantised checkpoint to a model in Hugging Face layout without a `quantization_config`, in `directory`. The checkpoint is in Hugging
 * Face layout, too; its `config.json` has a `quantization_config`.
 *
 * A matrix of integer levels (`GroupedMatrix`) becomes Pie's blocks where blocks can hold exactly the same values, else 32-bit floats. A matrix of
 * 8-bit floats becomes 32-bit floats. Tensors that are not quantised keep their type. Each matrix is converted some rows at a time.
 *
 * @throws ModelError `unsupported-model`, `malformed-config`, `malformed-weights`, `malformed-tokenizer`, `missing-tensor` or `wrong-shape`
 */
export async function convertQuantized(
  source: string,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  const json = await readJson(join(source, 'config.json'));
  const quantization = parseQuantization(json);
  const { quantization_config: _, ...plain } = json as Record<string, unknown>;
  const config = parseConfig(plain, await readOptionalJson(source, 'generation_config.json'));
  const sources = sourcesOf(config, quantization, new Stored(await storedTensors(source)));
  await copySideFiles(source, directory);
  await writeFile(join(directory, 'config.json'), `${JSON.stringify(plain, null, 2)}\n`);
  // A tokenizer that cannot be used is refused before gigabytes of weights are written.
  await loadTokenizer(directory);
  await writeSafetensors(join(directory, 'model.safetensors'), sources, onProgress);
}

function sourcesOf(config: ModelConfig, quantization: Quantization, stored: Stored): TensorSource[] {
  const sources = expectedTensors(config).flatMap(([name, shape]): TensorSource[] => {
    const quantized = shape.length === 2 ? quantizedSources(quantization, stored, name, shape) : null;
    if (quantized === null) return [plainSource(stored, name, shape)];
    if (quantization.ignored.has(name.replace(/\.weight$/, '')))
      throw new ModelError('malformed-weights', `"${name}" is quantised, though "quantization_config" excepts it`, {
        hint: MISMATCH,
      });
    return quantized;
  });
  const unusedTensor = stored
    .unused()
    .find(([name, { dtype }]) => dtype === 'F8_E4M3' || (dtype === 'I32' && /\.(qweight|weight_packed)$/.test(name)));
  if (unusedTensor !== undefined)
    throw new ModelError(
      'unsupported-model',
      `the checkpoint has a quantised "${unusedTensor[0]}", which Pie does not compute`,
    );
  return sources;
}

/** The tensors that a quantised matrix becomes; null when the checkpoint has the matrix as plain floats. */
function quantizedSources(
  quantization: Quantization,
  stored: Stored,
  name: string,
  shape: readonly number[],
): TensorSource[] | null {
  const read = () => {
    switch (quantization.kind) {
      case 'awq':
        return awqMatrix(quantization, stored, name, shape);
      case 'gptq':
        return gptqMatrix(quantization, stored, name, shape);
      case 'packed':
        return packedMatrix(quantization, stored, name, shape);
      case 'float8':
        return float8Source(quantization, stored, name, shape);
    }
  };
  const matrix = read();
  if (matrix === null) return null;
  // 8-bit floats are one converted tensor already.
  return 'data' in matrix ? [matrix] : groupedSources(name, matrix);
}

function plainSource(stored: Stored, name: string, shape: readonly number[]): TensorSource {
  const tensor = stored.require(name);
  expectStored(name, tensor, 'floats', shape);
  // `expectStored` has checked this; the condition narrows the type.
  if (!isFloat(tensor)) throw new TypeError(`"${name}" has no floats.`);
  return { name, shape, dtype: tensor.dtype, data: () => readPieces(tensor, PIECE_BYTES) };
}

/** For each of the eight outputs in a word: the place of its 4 bits, counted from the lowest bits. */
const PLACES = [0, 4, 1, 5, 2, 6, 3, 7];
const BITS = 4;
const LEVELS_PER_WORD = 32 / BITS;

/**
 * A matrix in AWQ's layout "gemm". Null when the checkpoint has the matrix as plain floats.
 *
 * A word of `qweight` holds the levels of eight outputs for one input. A word of `qzeros` holds the zero points of eight outputs for one group.
 * The numbers in a word are in an order that AWQ's kernel unpacks fast.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 * @see https://github.com/casper-hansen/AutoAWQ/blob/main/awq/utils/packing_utils.py
 */
export function awqMatrix(
  { groupSize }: Awq,
  stored: Stored,
  name: string,
  [rows = 0, columns = 0]: readonly number[],
): GroupedMatrix | null {
  const named = (end: string) => name.replace(/weight$/, end);
  const levels = stored.findInstead(named('qweight'), name);
  if (levels === null) return null;
  const zeros = stored.require(named('qzeros'), name);
  const scales = stored.require(named('scales'), name);
  const size = groupSize ?? columns;
  const groups = columns / size;
  const words = rows / LEVELS_PER_WORD;
  expectStored(named('qweight'), levels, 'I32', [columns, words]);
  expectStored(named('qzeros'), zeros, 'I32', [groups, words]);
  expectStored(named('scales'), scales, 'floats', [groups, rows]);
  const packing = { bits: BITS, along: 'rows', rowStride: 1, columnStride: words, places: PLACES } as const;
  return {
    bits: BITS,
    rows,
    columns,
    groups,
    // AWQ has no tensor of groups: a group's columns are always neighbours.
    grouping: groupingOf({ columns, groups, size }, null, false),
    levels: { tensor: levels, packing },
    zeros: { tensor: zeros, packing, lessOne: false },
    scales: { name: named('scales'), tensor: scales, by: 'group' },
  };
}

/**
 * A matrix in GPTQ's layout. Null when the checkpoint has the matrix as plain floats.
 *
 * A word of 32 bits holds eight numbers of 4 bits, or four numbers of 8 bits. A word of `qweight` holds the levels of
 * neighbouring inputs for one output. A word of `qzeros` holds the zero points of neighbouring outputs for one group.
 * `g_idx` has the group of each input.
 *
 * The first of GPTQ's two formats stores each zero point minus one. Its writers subtract the ones from a whole word, so
 * a zero point of 0 borrows from the number above it in the word. `readZeros` therefore adds the ones to whole words.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 * @see https://github.com/ModelCloud/GPTQModel/blob/main/gptqmodel/utils/model.py (`convert_gptq_v1_to_v2_format_module`)
 */
export function gptqMatrix(
  { bits, groupSize, zerosLessOne, reordered }: Gptq,
  stored: Stored,
  name: string,
  [rows = 0, columns = 0]: readonly number[],
): GroupedMatrix | null {
  const named = (end: string) => name.replace(/weight$/, end);
  const levels = stored.findInstead(named('qweight'), name);
  if (levels === null) return null;
  const zeros = stored.require(named('qzeros'), name);
  const scales = stored.require(named('scales'), name);
  const index = reordered ? stored.require(named('g_idx'), name) : stored.find(named('g_idx'));
  const size = groupSize ?? columns;
  const groups = Math.ceil(columns / size);
  const levelsPerWord = 32 / bits;
  expectStored(named('qweight'), levels, 'I32', [columns / levelsPerWord, rows]);
  expectStored(named('qzeros'), zeros, 'I32', [groups, rows / levelsPerWord]);
  expectStored(named('scales'), scales, 'floats', [groups, rows]);
  const grouping = groupingOf(
    { columns, groups, size },
    index === undefined ? null : { name: named('g_idx'), tensor: index },
    reordered,
  );
  return {
    bits,
    rows,
    columns,
    groups,
    grouping,
    levels: {
      tensor: levels,
      packing: { bits, along: 'columns', rowStride: 1, columnStride: rows },
    },
    zeros: {
      tensor: zeros,
      lessOne: zerosLessOne,
      packing: { bits, along: 'rows', rowStride: 1, columnStride: rows / levelsPerWord },
    },
    scales: { name: named('scales'), tensor: scales, by: 'group' },
  };
}

/**
 * A matrix in compressed-tensors' format "pack-quantized". Null when the checkpoint has the matrix as plain floats.
 *
 * A word of levels holds neighbouring levels of a row. A word of zero points holds those of neighbouring rows for one group. The last word of a
 * row of levels, or of a column of zero points, may have padding.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 * @see https://github.com/neuralmagic/compressed-tensors/blob/main/src/compressed_tensors/compressors/quantized_compressors/pack_quantized.py
 */
export function packedMatrix(
  { bits, groupSize, hasZeros, reordered }: Packed,
  stored: Stored,
  name: string,
  shape: readonly number[],
): GroupedMatrix | null {
  const named = (end: string) => `${name}_${end}`;
  const levels = stored.findInstead(named('packed'), name);
  if (levels === null) return null;
  const [rows = 0, columns = 0] = shape;
  const scales = stored.require(named('scale'), name);
  const zeros = hasZeros ? stored.require(named('zero_point'), name) : null;
  const index = reordered ? { name: named('g_idx'), tensor: stored.require(named('g_idx'), name) } : null;
  const size = groupSize ?? columns;
  const groups = Math.ceil(columns / size);
  const wordsOf = (count: number) => Math.ceil((count * bits) / 32);
  expectStored(named('packed'), levels, 'I32', [rows, wordsOf(columns)]);
  expectStored(named('scale'), scales, 'floats', [rows, groups]);
  if (zeros !== null) expectStored(named('zero_point'), zeros, 'I32', [wordsOf(rows), groups]);
  checkShape(named('shape'), stored.find(named('shape')), shape);
  return {
    bits,
    rows,
    columns,
    groups,
    grouping: groupingOf({ columns, groups, size }, index, reordered),
    levels: {
      tensor: levels,
      packing: { bits, along: 'columns', rowStride: wordsOf(columns), columnStride: 1 },
    },
    zeros: zeros && {
      tensor: zeros,
      lessOne: false,
      packing: { bits, along: 'rows', rowStride: groups, columnStride: 1 },
    },
    scales: { name: named('scale'), tensor: scales, by: 'row' },
  };
}

/** Checks the tensor that holds the shape of the matrix before packing. A checkpoint need not have this tensor. */
function checkShape(name: string, tensor: StoredTensor | undefined, shape: readonly number[]): void {
  if (tensor === undefined) return;
  expectStored(name, tensor, tensor.dtype === 'I32' ? 'I32' : 'I64', [2]);
  const bytes = readBytes(tensor);
  const found = [0, 1].map((i) =>
    tensor.dtype === 'I32' ? bytes.readInt32LE(4 * i) : Number(bytes.readBigInt64LE(8 * i)),
  );
  if (String(found) === String(shape)) return;
  throw new ModelError(
    'wrong-shape',
    `"${name}" holds the shape [${found.join(', ')}], but config.json implies [${shape.join(', ')}]`,
  );
}
