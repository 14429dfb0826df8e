import path from 'node:path';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { randomModel } from '#gpu-host/models/testing/random-model.ts';

/** Sizes of published models: stories15M, and SmolLM2 of 135M and 360M parameters. */
const SHAPES = {
  '15M': {
    hiddenSize: 288,
    intermediateSize: 768,
    layers: 6,
    heads: 6,
    kvHeads: 6,
    headDim: 48,
    vocabularySize: 32_000,
  },
  '135M': {
    hiddenSize: 576,
    intermediateSize: 1536,
    layers: 30,
    heads: 9,
    kvHeads: 3,
    headDim: 64,
    vocabularySize: 49_152,
  },
  '360M': {
    hiddenSize: 960,
    intermediateSize: 2560,
    layers: 32,
    heads: 15,
    kvHeads: 5,
    headDim: 64,
    vocabularySize: 49_152,
  },
} as const satisfies Record<string, Partial<ModelConfig>>;

export type Shape = keyof typeof SHAPES;

/**
 * Writes a model with the sizes of a published model and random weights, and returns the model's folder below `folder`. A step of the model takes as
 * long as a step of the published one.
 */
export async function randomShape(folder: string, shape: Shape, changes: Partial<ModelConfig> = {}): Promise<string> {
  const config = { ...SHAPES[shape], tiedEmbeddings: true, ...changes };
  return (await randomModel(path.join(folder, `random-${shape}`), config, 1)).directory;
}
