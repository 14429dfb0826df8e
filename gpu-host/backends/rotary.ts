import { isLlama3, type ModelConfig } from '#gpu-host/models/config.ts';

/**
 * Angle per position of each rotated pair, `headDim / 2` values: pair i turns by `position × frequency[i]`.
 *
 * Pairs follow Hugging Face: element i with element `i + headDim / 2`. Llama 3's scaling (Llama 3.1 model card; `rope_scaling` of type `llama3`)
 * divides low frequencies, keeps high ones, and blends both between its two thresholds. Linear scaling divides all frequencies.
 */
export function rotaryFrequencies(config: ModelConfig): Float64Array {
  const half = config.headDim / 2;
  const frequencies = new Float64Array(half);
  for (let i = 0; i < half; i++) frequencies[i] = config.ropeTheta ** ((-2 * i) / config.headDim);
  const scaling = config.ropeScaling;
  if (scaling === null) return frequencies;
  if (!isLlama3(scaling)) return frequencies.map((frequency) => frequency / scaling.factor);
  const { factor, lowFrequencyFactor, highFrequencyFactor, originalContextLength } = scaling;
  return frequencies.map((frequency) => {
    const turns = (originalContextLength * frequency) / (2 * Math.PI);
    if (turns > highFrequencyFactor) return frequency;
    if (turns < lowFrequencyFactor) return frequency / factor;
    const smooth = (turns - lowFrequencyFactor) / (highFrequencyFactor - lowFrequencyFactor);
    return ((1 - smooth) * frequency) / factor + smooth * frequency;
  });
}
