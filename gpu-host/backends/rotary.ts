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

/** Rotates stored keys to other positions. Rotations add up: a shift turns each pair of a key's numbers by a further `shift × frequency`. */
export class KeyTurner {
  readonly #shifts: Int32Array;
  /** Cosines and sines of each shift that occurs, `headDim / 2` each. */
  readonly #rotations = new Map<number, { readonly cos: Float64Array; readonly sin: Float64Array }>();

  constructor(frequencies: Float64Array, shifts: Int32Array) {
    this.#shifts = shifts;
    for (const shift of shifts) {
      if (shift === 0 || this.#rotations.has(shift)) continue;
      const cos = frequencies.map((frequency) => Math.cos(shift * frequency));
      this.#rotations.set(shift, { cos, sin: frequencies.map((frequency) => Math.sin(shift * frequency)) });
    }
  }

  /** Turns all heads of the `index`-th copied key in place. Computes in 64-bit floats and rounds each result once. */
  turn(key: Float32Array, index: number): void {
    const rotation = this.#rotations.get(this.#shifts[index]);
    if (rotation === undefined) return;
    const { cos, sin } = rotation;
    const half = cos.length;
    for (let start = 0; start < key.length; start += 2 * half) {
      for (let i = 0; i < half; i++) {
        const a = key[start + i];
        const b = key[start + i + half];
        key[start + i] = a * cos[i] - b * sin[i];
        key[start + i + half] = b * cos[i] + a * sin[i];
      }
    }
  }
}
