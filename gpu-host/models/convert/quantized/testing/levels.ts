import { bytesOf, floats, type QuantizedMatrix, type Raw, type Scheme } from './write.ts';

/** Options for the choice of levels, which all schemes of this file share. */
interface LevelOptions {
  readonly bits: 4 | 8;
  /** Number of inputs in a group; Infinity for one group of all inputs. */
  readonly groupSize: number;
  readonly symmetric: boolean;
  readonly type: 'F32' | 'F16' | 'BF16';
  /** True to form groups of inputs that are not neighbours. */
  readonly reordered?: boolean;
}

/** A matrix before it is packed. */
interface Levels {
  readonly rows: number;
  readonly columns: number;
  readonly groups: number;
  level(row: number, column: number): number;
  zero(row: number, group: number): number;
  scale(row: number, group: number): number;
  readonly groupOf: readonly number[];
  readonly values: Float64Array;
}

/** For each 4-bit digit of an AWQ word, from the lowest: the output to which the digit belongs. */
const AWQ_DIGITS = [0, 2, 4, 6, 1, 3, 5, 7];

/** AWQ's layout "gemm". */
export function awqScheme(options: Omit<LevelOptions, 'bits'>, quantization: Scheme['quantization']): Scheme {
  const quantize = (weights: Float32Array, rows: number, columns: number): QuantizedMatrix => {
    const matrix = quantised(weights, rows, columns, { ...options, bits: 4 });
    const { groups, level, zero, values } = matrix;
    const wordsOfOutputs = (lines: number, at: (line: number, output: number) => number) =>
      words(lines, rows / 8, (line, word) => AWQ_DIGITS.map((output) => at(line, 8 * word + output)), 4);
    const parts = {
      qweight: wordsOfOutputs(columns, (input, output) => level(output, input)),
      qzeros: wordsOfOutputs(groups, (group, output) => zero(output, group)),
      scales: byGroup(matrix, options.type),
    };
    return { parts, values };
  };
  return { quantization, quantize };
}

/** GPTQ's layout. Its first format, `gptq`, stores each zero point minus one; a digit is one number in a word. */
export function gptqScheme(
  options: LevelOptions & { readonly format: 'gptq' | 'gptq_v2' },
  quantization: Scheme['quantization'],
): Scheme {
  const { bits, type, format } = options;
  const digits = 32 / bits;
  const quantize = (weights: Float32Array, rows: number, columns: number): QuantizedMatrix => {
    const matrix = quantised(weights, rows, columns, options);
    const { groups, level, zero, values, groupOf } = matrix;
    const neighbours = (first: number) => Array.from({ length: digits }, (_, i) => first + i);
    const qzeros = words(
      groups,
      rows / digits,
      (g, word) => neighbours(word * digits).map((row) => zero(row, g)),
      bits,
    );
    const parts = {
      qweight: words(columns / digits, rows, (line, row) => neighbours(line * digits).map((c) => level(row, c)), bits),
      qzeros: format === 'gptq' ? lessOne(qzeros, bits) : qzeros,
      scales: byGroup(matrix, type),
      g_idx: integers(groupOf, [columns]),
    };
    return { parts, values };
  };
  return { quantization, quantize };
}

/** compressed-tensors' format "pack-quantized". */
export function packedScheme(options: LevelOptions, quantization: Scheme['quantization']): Scheme {
  const { bits, type, symmetric, reordered } = options;
  const digits = 32 / bits;
  const quantize = (weights: Float32Array, rows: number, columns: number): QuantizedMatrix => {
    const { groups, level, zero, scale, values, groupOf } = quantised(weights, rows, columns, options);
    const neighbours = (word: number, end: number) =>
      Array.from({ length: digits }, (_, i) => word * digits + i).filter((at) => at < end);
    const parts: Record<string, Raw> = {
      weight_packed: words(
        rows,
        Math.ceil(columns / digits),
        (row, word) => neighbours(word, columns).map((column) => level(row, column)),
        bits,
      ),
      weight_scale: floats(table(rows, groups, scale), type, [rows, groups]).raw,
      weight_shape: { dtype: 'I64', shape: [2], bytes: bytesOf(BigInt64Array.of(BigInt(rows), BigInt(columns))) },
    };
    if (!symmetric) {
      parts.weight_zero_point = words(
        Math.ceil(rows / digits),
        groups,
        (word, group) => neighbours(word, rows).map((row) => zero(row, group)),
        bits,
      );
    }
    if (reordered) parts.weight_g_idx = integers(groupOf, [columns]);
    return { parts, values };
  };
  return { quantization, quantize };
}

function quantised(
  weights: Float32Array,
  rows: number,
  columns: number,
  { bits, groupSize, symmetric, type, reordered = false }: LevelOptions,
): Levels {
  const size = Math.min(groupSize, columns);
  const groups = Math.ceil(columns / size);
  // 7 has no factor in common with the tests' widths, so the reordered places are a permutation of the columns.
  const placeOf = (column: number) => (reordered ? (column * 7) % columns : column);
  const groupOf = Array.from({ length: columns }, (_, column) => Math.floor(placeOf(column) / size));
  const maxLevel = 2 ** bits - 1;
  const lows = new Float64Array(rows * groups);
  const highs = new Float64Array(rows * groups);
  const groupIndexOf = (i: number) => Math.floor(i / columns) * groups + (groupOf[i % columns] as number);
  weights.forEach((value, i) => {
    lows[groupIndexOf(i)] = Math.min(lows[groupIndexOf(i)] as number, value);
    highs[groupIndexOf(i)] = Math.max(highs[groupIndexOf(i)] as number, value);
  });
  const idealScales = lows.map((low, i) => {
    const high = highs[i] as number;
    return symmetric ? Math.max(high, -low) / (2 ** (bits - 1) - 1) : (high - low) / maxLevel;
  });
  const scales = floats(idealScales, type, [rows, groups]).values;
  // Every fifth zero point is 0: the subtraction of GPTQ's first format then borrows from the next digit.
  const zeros = scales.map((scale, i) => {
    if (symmetric) return 2 ** (bits - 1);
    return i % 5 === 0 ? 0 : Math.round(-(lows[i] as number) / scale);
  });
  const levels = new Float64Array(weights.length);
  const values = new Float64Array(weights.length);
  weights.forEach((value, i) => {
    const [scale, zero] = [scales[groupIndexOf(i)] as number, zeros[groupIndexOf(i)] as number];
    levels[i] = Math.max(0, Math.min(maxLevel, Math.round(value / scale) + zero));
    values[i] = ((levels[i] as number) - zero) * scale;
  });
  return {
    rows,
    columns,
    groups,
    groupOf,
    values,
    level: (row, column) => levels[row * columns + column] as number,
    zero: (row, group) => zeros[row * groups + group] as number,
    scale: (row, group) => scales[row * groups + group] as number,
  };
}

function byGroup({ rows, groups, scale }: Levels, type: LevelOptions['type']): Raw {
  return floats(
    table(groups, rows, (group, row) => scale(row, group)),
    type,
    [groups, rows],
  ).raw;
}

function table(rows: number, columns: number, at: (row: number, column: number) => number): number[] {
  return Array.from({ length: rows * columns }, (_, i) => at(Math.floor(i / columns), i % columns));
}

/** Packs digits into words. `digitsOf` gives the digits of a word, the lowest digit first. */
function words(
  rows: number,
  columns: number,
  digitsOf: (row: number, column: number) => readonly number[],
  bits: 4 | 8,
): Raw {
  const packedWords = table(rows, columns, (row, column) => {
    const digits = digitsOf(row, column).map((digit) => digit.toString(16).padStart(bits / 4, '0'));
    return Number.parseInt(digits.toReversed().join(''), 16);
  });
  return integers(packedWords, [rows, columns]);
}

/** Subtracts one from each digit, as GPTQ's writers do: in whole words, so that a digit of 0 borrows from the next one. */
function lessOne({ dtype, shape, bytes }: Raw, bits: 4 | 8): Raw {
  const ones = bits === 4 ? 0x11111111n : 0x01010101n;
  const loweredWords = Array.from(new Uint32Array(bytes.slice().buffer), (word) =>
    BigInt.asUintN(32, BigInt(word) - ones),
  );
  return { dtype, shape, bytes: bytesOf(Uint32Array.from(loweredWords, Number)) };
}

function integers(values: readonly number[], shape: readonly number[]): Raw {
  return { dtype: 'I32', shape, bytes: bytesOf(Uint32Array.from(values)) };
}
