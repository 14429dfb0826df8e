import { expectedTensors, type LoadedModel } from '#gpu-host/models/load.ts';

/** Widths of which the CUDA backend has 8-bit weights are multiples of this. */
const MULTIPLE = 16;

/**
 * The same model with the very weights that the CUDA backend multiplies by in `int8`: of each product's matrix a scale for each row, its largest value
 * over 127, times a whole number. The weights are bf16 already. A tied head is its own tensor then: embeddings stay as they are.
 */
export function int8Model(model: LoadedModel): LoadedModel {
  const { config, tensors } = model;
  const untied = { ...config, tiedEmbeddings: false };
  const columnsOf = new Map(expectedTensors(untied).map(([name, shape]) => [name, shape[1] ?? 0]));
  const original = (name: string) =>
    name === 'lm_head.weight' && config.tiedEmbeddings ? 'model.embed_tokens.weight' : name;
  return {
    ...model,
    config: untied,
    tensors: {
      has: (name) => tensors.has(original(name)),
      info: (name) => tensors.info(original(name)),
      read(name) {
        const weights = tensors.read(original(name));
        const columns = columnsOf.get(name) ?? 0;
        const isProduct = name.endsWith('_proj.weight') || name === 'lm_head.weight';
        return isProduct && columns % MULTIPLE === 0 ? rounded(weights, columns) : weights;
      },
    },
  };
}

function rounded(weights: Float32Array, columns: number): Float32Array {
  const result = new Float32Array(weights.length);
  for (let start = 0; start < weights.length; start += columns) {
    const row = weights.subarray(start, start + columns);
    const scale = Math.fround(row.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127);
    row.forEach((value, i) => {
      result[start + i] = scale === 0 ? 0 : nearestEven(Math.fround(value / scale)) * scale;
    });
  }
  return result;
}

function nearestEven(value: number): number {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}
