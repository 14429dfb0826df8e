import { expectedTensors, type LoadedModel } from '#gpu-host/models/load.ts';

/** Precisions of the CUDA backend whose weights have fewer bits than its activations. */
type NarrowPrecision = 'int8' | 'fp8' | 'int4';
export const NARROW_PRECISIONS: readonly NarrowPrecision[] = ['int8', 'fp8', 'int4'];

/**
 * The same model with the exact weights that the CUDA backend multiplies by at `precision`: each code of a product's matrix times the scale
 * of its row, or at 4 bits of its group of columns. The weights must be bf16. A tied head becomes its own tensor; embeddings stay unchanged.
 */
export function narrowWeightsModel(model: LoadedModel, precision: NarrowPrecision): LoadedModel {
  const { config, tensors } = model;
  const untied = { ...config, tiedEmbeddings: false };
  const columnsOf = new Map(expectedTensors(untied).map(([name, shape]) => [name, shape[1] ?? 0]));
  const storedName = (name: string) =>
    name === 'lm_head.weight' && config.tiedEmbeddings ? 'model.embed_tokens.weight' : name;
  return {
    ...model,
    config: untied,
    tensors: {
      has: (name) => tensors.has(storedName(name)),
      info: (name) => tensors.info(storedName(name)),
      read(name) {
        const weights = tensors.read(storedName(name));
        const columns = columnsOf.get(name) ?? 0;
        const isHead = name === 'lm_head.weight';
        const isProduct = name.endsWith('_proj.weight') || isHead;
        return isProduct ? narrowed(weights, columns, precision, isHead) : weights;
      },
    },
  };
}

/** Narrows one matrix. Widths that a precision does not support stay bf16; the head, and widths unfit for 4 bits, fall back to 8 bits. */
function narrowed(weights: Float32Array, columns: number, precision: NarrowPrecision, isHead: boolean): Float32Array {
  if (precision === 'int4' && !isHead && columns % 32 === 0) {
    const group = [128, 64, 32].find((size) => columns % size === 0) ?? columns;
    return quantizedAndWidened(weights, group, fourBitScale, (value) => Math.min(7, Math.max(-8, nearestEven(value))));
  }
  if (columns % 16 !== 0) return weights;
  return precision === 'fp8'
    ? quantizedAndWidened(weights, columns, (row) => Math.fround(largest(row) / 448), nearestE4m3)
    : quantizedAndWidened(weights, columns, (row) => Math.fround(largest(row) / 127), nearestEven);
}

/** Quantises and widens each run of `runLength` values: each value becomes the code of `value / scale`, times the run's scale. */
function quantizedAndWidened(
  weights: Float32Array,
  runLength: number,
  scaleOf: (values: Float32Array) => number,
  codeOf: (value: number) => number,
): Float32Array {
  const result = new Float32Array(weights.length);
  for (let start = 0; start < weights.length; start += runLength) {
    const values = weights.subarray(start, start + runLength);
    const scale = scaleOf(values);
    values.forEach((value, i) => {
      result[start + i] = scale === 0 ? 0 : codeOf(Math.fround(value / scale)) * scale;
    });
  }
  return result;
}

function largest(values: Float32Array): number {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

/** The scale at which the value furthest from zero becomes -8, rounded to five significant bits. Of two such values, the positive one. */
function fourBitScale(values: Float32Array): number {
  const size = largest(values);
  if (size === 0) return 0;
  const step = 2 ** (exponentOf(size / 8) - 4);
  return nearestEven(size / 8 / step) * step * (values.includes(size) ? -1 : 1);
}

/** Rounds to four bits of exponent and three of fraction: a step is an eighth of the power of two below the value, and 2⁻⁹ for values below 2⁻⁶. */
function nearestE4m3(value: number): number {
  if (value === 0) return 0;
  const step = 2 ** (Math.max(exponentOf(value), -6) - 3);
  return Math.min(448, Math.max(-448, nearestEven(value / step) * step));
}

function exponentOf(value: number): number {
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  // Math.log2 rounds, so correct its exponent by one where needed.
  if (Math.abs(value) < 2 ** exponent) return exponent - 1;
  return Math.abs(value) >= 2 ** (exponent + 1) ? exponent + 1 : exponent;
}

function nearestEven(value: number): number {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}
