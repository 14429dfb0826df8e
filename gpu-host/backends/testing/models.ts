import type { ModelConfig } from '#gpu-host/models/config.ts';

/** Tiny models of every shape that the family knows, by what they exercise. */
export const VARIANTS: Readonly<Record<string, Partial<ModelConfig>>> = {
  'grouped queries': { heads: 4, kvHeads: 2, headDim: 8 },
  'one head per query, tied': { heads: 4, kvHeads: 4, headDim: 8, tiedEmbeddings: true },
  'one key head, three layers': { heads: 6, kvHeads: 1, headDim: 16, hiddenSize: 48, layers: 3 },
  'Llama 3 rotation': {
    heads: 4,
    kvHeads: 2,
    headDim: 16,
    hiddenSize: 64,
    ropeTheta: 500_000,
    ropeScaling: { factor: 8, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalContextLength: 64 },
  },
  'Qwen 2': { family: 'qwen2', heads: 4, kvHeads: 2, headDim: 8, tiedEmbeddings: true },
  'Qwen 3': { family: 'qwen3', heads: 4, kvHeads: 2, headDim: 16, rmsNormEpsilon: 1e-6 },
};
