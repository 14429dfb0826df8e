import type { ModelConfig } from '#gpu-host/models/config.ts';
import { type Rotation, rotationsOf } from '../rotary.ts';
import type { EngineOptions } from './addon.ts';

/** The options of an engine by which it computes what a model has beyond a plain Llama decoder: `ModelTraits` of `native/engine/engine.h`. */
export type EngineTraits = Pick<
  EngineOptions,
  | ('rotations' | 'frequencies' | 'rotationScales' | 'rotationOf' | 'headOrder' | 'windows')
  | ('attentionScale' | 'attentionSoftcap' | 'embeddingScale' | 'residualScale' | 'logitScale' | 'logitSoftcap')
  | ('outputBias' | 'rowNorms' | 'norms' | 'normOffset' | 'gelu')
>;

export function engineTraits(config: ModelConfig): EngineTraits {
  const rotations = rotationsOf(config);
  const distinct = [...new Set(rotations)];
  const half = config.headDim / 2;
  const frequencies = new Float64Array(distinct.length * half);
  const rotationScales = new Float64Array(distinct.length * half).fill(1);
  for (const [i, rotation] of distinct.entries()) {
    if (rotation === null) continue;
    frequencies.set(rotation.frequencies, i * half);
    rotationScales.fill(rotation.scale, i * half, i * half + rotation.frequencies.length);
  }
  return {
    rotations: distinct.length,
    frequencies,
    rotationScales: rotationScales.some((scale) => scale !== 1) ? rotationScales : undefined,
    rotationOf: distinct.length > 1 ? Int32Array.from(rotations, (rotation) => distinct.indexOf(rotation)) : undefined,
    headOrder: headOrder(config, distinct.find((rotation) => rotation !== null)?.pairs ?? 'halves'),
    windows: config.windows.length > 0 ? Int32Array.from(config.windows, (window) => window ?? 0) : undefined,
    attentionScale: config.attentionScale,
    attentionSoftcap: config.attentionSoftcap ?? 0,
    embeddingScale: config.embeddingScale,
    residualScale: config.residualScale,
    logitScale: config.logitScale,
    logitSoftcap: config.logitSoftcap ?? 0,
    outputBias: config.outputBias,
    rowNorms: config.queryKeyNorm && config.queryKeyNormSpan === 'row',
    norms: config.norms,
    normOffset: config.normOffset,
    gelu: config.activation === 'gelu',
  };
}

/**
 * The order of a head's values that brings those which turn together to places i and i + headDim / 2, as the kernels turn them. Scores do not change
 * when queries and keys have the same order. Undefined where the order of the weights is that one.
 */
function headOrder({ headDim, rotaryDim }: ModelConfig, pairs: Rotation['pairs']): Int32Array | undefined {
  if (pairs === 'halves' && rotaryDim === headDim) return undefined;
  const [half, turned] = [headDim / 2, rotaryDim / 2];
  return Int32Array.from({ length: headDim }, (_, place) => {
    const [pair, side] = [place % half, Math.floor(place / half)];
    // Values that do not turn fill the rest in their order.
    if (pair >= turned) return rotaryDim + side * (half - turned) + (pair - turned);
    return pairs === 'halves' ? pair + side * turned : 2 * pair + side;
  });
}
