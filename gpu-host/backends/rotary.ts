import type { ModelConfig, RopeScaling } from '#gpu-host/models/config.ts';

/** How the heads of a layer turn with their position (RoPE, Su et al., 2021). */
export interface Rotation {
  /** Angle per position of each rotated pair: pair i turns by `position × frequency[i]`. The first `2 × pairs` elements of a head are rotated. */
  readonly frequencies: Float64Array;
  /** Factor of the rotated elements. */
  readonly scale: number;
  /** Elements that form pair i: i and i + the number of pairs (Hugging Face), or 2i and 2i + 1. */
  readonly pairs: ModelConfig['rotaryPairs'];
}

/** The rotation of each layer; null where a layer has none. Layers that turn alike share an object. */
export function rotationsOf(config: ModelConfig): readonly (Rotation | null)[] {
  const { ropeScaling: scaling, rotaryPairs: pairs, localRopeTheta } = config;
  const scale = scaling !== null && 'attentionFactor' in scaling ? scaling.attentionFactor : 1;
  const global: Rotation = { frequencies: rotaryFrequencies(config), scale, pairs };
  const local: Rotation =
    localRopeTheta === null
      ? global
      : { frequencies: frequenciesOf(config.rotaryDim, localRopeTheta, null), scale: 1, pairs };
  const unrotated = new Set(config.unrotatedLayers);
  return Array.from({ length: config.layers }, (_, layer) => {
    if (unrotated.has(layer)) return null;
    return (config.windows[layer] ?? null) === null ? global : local;
  });
}

/** Frequencies of the layers without a window, `rotaryDim / 2` values (see {@link Rotation}). */
export function rotaryFrequencies(config: ModelConfig): Float64Array {
  return frequenciesOf(config.rotaryDim, config.ropeTheta, config.ropeScaling);
}

function frequenciesOf(rotaryDim: number, theta: number, scaling: RopeScaling | null): Float64Array {
  const frequencies = Float64Array.from({ length: rotaryDim / 2 }, (_, i) => theta ** ((-2 * i) / rotaryDim));
  switch (scaling?.type) {
    case 'linear':
      return frequencies.map((frequency) => frequency / scaling.factor);
    case 'longrope':
      return frequencies.map((frequency, i) => frequency / (scaling.divisors[i] as number));
    // Llama 3.1's model card: low frequencies are divided, high ones kept, and both blended between two thresholds.
    case 'llama3': {
      const { factor, lowFrequencyFactor, highFrequencyFactor, originalContextLength } = scaling;
      return frequencies.map((frequency) => {
        const turns = (originalContextLength * frequency) / (2 * Math.PI);
        if (turns > highFrequencyFactor) return frequency;
        if (turns < lowFrequencyFactor) return frequency / factor;
        const smooth = (turns - lowFrequencyFactor) / (highFrequencyFactor - lowFrequencyFactor);
        return ((1 - smooth) * frequency) / factor + smooth * frequency;
      });
    }
    // Peng et al., 2023, section 3.2: the blend is linear in the number of the pair.
    case 'yarn': {
      const { factor, betaFast, betaSlow, originalContextLength, truncates } = scaling;
      const pairWith = (turns: number) =>
        (rotaryDim * Math.log(originalContextLength / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
      const [from, to] = [pairWith(betaFast), pairWith(betaSlow)];
      const low = Math.max(truncates ? Math.floor(from) : from, 0);
      const high = Math.min(truncates ? Math.ceil(to) : to, rotaryDim - 1);
      return frequencies.map((frequency, i) => {
        const scaled = Math.min(1, Math.max(0, (i - low) / Math.max(high - low, 0.001)));
        return (frequency / factor) * scaled + frequency * (1 - scaled);
      });
    }
    default:
      return frequencies;
  }
}

/** Rotates stored keys to other positions. Rotations add up: a shift turns each pair of a key's numbers by a further `shift × frequency`. */
export class KeyTurner {
  readonly #shifts: Int32Array;
  readonly #headDim: number;
  readonly #isHalves: boolean;
  /** Cosines and sines of each shift that occurs, one for each pair. */
  readonly #turns = new Map<number, { readonly cos: Float64Array; readonly sin: Float64Array }>();

  /** @param rotation of the layer whose keys are turned */
  constructor({ frequencies, pairs }: Rotation, headDim: number, shifts: Int32Array) {
    this.#shifts = shifts;
    this.#headDim = headDim;
    this.#isHalves = pairs === 'halves';
    for (const shift of shifts) {
      if (shift === 0 || this.#turns.has(shift)) continue;
      const cos = frequencies.map((frequency) => Math.cos(shift * frequency));
      this.#turns.set(shift, { cos, sin: frequencies.map((frequency) => Math.sin(shift * frequency)) });
    }
  }

  /** Turns all heads of the `index`-th copied key in place. Computes in 64-bit floats and rounds each result once. */
  turn(key: Float32Array, index: number): void {
    const turn = this.#turns.get(this.#shifts[index]);
    if (turn === undefined) return;
    const { cos, sin } = turn;
    const [step, distance] = this.#isHalves ? [1, cos.length] : [2, 1];
    for (let start = 0; start < key.length; start += this.#headDim) {
      for (let i = 0; i < cos.length; i++) {
        const at = start + i * step;
        const a = key[at];
        const b = key[at + distance];
        key[at] = a * cos[i] - b * sin[i];
        key[at + distance] = b * cos[i] + a * sin[i];
      }
    }
  }
}

/** One turner for each layer, null where keys have no rotation. */
export function turnersOf(
  config: ModelConfig,
  rotations: readonly (Rotation | null)[],
  shifts: Int32Array,
): readonly (KeyTurner | null)[] {
  const turners = new Map<Rotation, KeyTurner>();
  return rotations.map((rotation) => {
    if (rotation === null) return null;
    const known = turners.get(rotation) ?? new KeyTurner(rotation, config.headDim, shifts);
    turners.set(rotation, known);
    return known;
  });
}
