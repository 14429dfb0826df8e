import type { RunRequest } from 'pie:inferlet/fused@0.1.0';
import type { ModelInfo } from '../context/models.ts';
import { check, checkCount, InferletError } from '../errors.ts';
import type { Queue, Run } from '../raw.ts';

/** The most probable tokens after a context, most probable first; natural logarithms over the whole vocabulary at temperature 1. */
export interface Distribution {
  readonly tokens: ArrayLike<number>;
  readonly logProbabilities: ArrayLike<number>;
}

/** Settings of a built-in sampler. The temperature applies first, then the cuts `topK`, `topP` and `minP` in this order. */
export interface SamplerOptions {
  /** 0 is greedy; 1 (the default) leaves the probabilities as they are. */
  readonly temperature?: number;
  /**
   * Keep the k most probable; 0 (the default) keeps all. A sampler that runs in the inferlet, and a model on an NVIDIA card, keep 256 at most; the
   * other cuts are then relative to those.
   */
  readonly topK?: number;
  /** Keep the smallest set of most probable tokens whose probabilities add up to p; 1 (the default) keeps all. */
  readonly topP?: number;
  /** Keep tokens at least this fraction as probable as the most probable one; 0 (the default) keeps all. */
  readonly minP?: number;
  /** Equal seeds give equal texts. If omitted, the seed comes from the host's random generator. */
  readonly seed?: number;
}

/** A sampler that the device implements, so that it can decode ahead without waiting for the inferlet. */
export interface DeviceSampler {
  readonly kind: 'device';
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number | undefined;
}

/** The state that a custom sampler may read besides the distribution. */
export interface SamplingState {
  /** The context so far, prompt included. */
  readonly tokens: readonly number[];
  /** A number in [0, 1) from the generation's seed and this position. */
  readonly random: number;
  /** Number of tokens that this generation has chosen so far. */
  readonly generated: number;
}

/** A sampler that runs in the inferlet, once per token, on the device's distribution. */
export interface GuestSampler {
  readonly kind: 'guest';
  /** Number of candidates that the sampler needs. */
  readonly candidates: number;
  /** Further token ids whose probabilities the sampler needs, even if they are improbable. A speculator does not support them (`unsupported`). */
  readonly also?: readonly number[];
  readonly seed: number | undefined;
  choose(distribution: Distribution, state: SamplingState): number;
  /** @internal Set when the host can make the same choices by itself. The inferlet then need not see every token. */
  readonly ahead?: RunSampler | undefined;
  /** Returns a sampler for one generation, for samplers with state. Without it, all generations share this sampler. */
  begin?(model: ModelInfo): GuestSampler;
}

/** A guest sampler as the host runs it. */
export interface RunSampler {
  /** The function whose choices the run reproduces. If the sampler's `choose` is another function, the inferlet calls that one at each token. */
  readonly choose: GuestSampler['choose'];
  readonly sampler: DeviceSampler;
  /** Starts a run after `chosen`, the tokens of the generation so far. */
  start(queue: Queue, request: RunRequest, chosen: readonly number[]): Run;
}

/** A way to pick each token: built-in samplers run on the device, custom ones in the inferlet. */
export type Sampler = DeviceSampler | GuestSampler;

/** Most candidates that a host returns (the tenant's cap may be lower). */
const MAX_CANDIDATES = 256;

/** A built-in sampler. Throws `invalid-argument` for a value out of range. */
export function sampler(options: SamplerOptions = {}): DeviceSampler {
  const { temperature = 1, topK = 0, topP = 1, minP = 0, seed } = options;
  check(temperature >= 0 && Number.isFinite(temperature), 'temperature', '0 or more', temperature);
  checkCount('topK', topK, 0);
  check(topP > 0 && topP <= 1, 'topP', 'above 0 and at most 1', topP);
  check(minP >= 0 && minP <= 1, 'minP', 'from 0 to 1', minP);
  if (seed !== undefined) checkCount('seed', seed, 0, 2 ** 32 - 1);
  return { kind: 'device', temperature, topK, topP, minP, seed };
}

/** Always the most probable token. */
export const greedy = (): DeviceSampler => sampler({ temperature: 0 });
/** Probabilities sharpened (below 1) or flattened (above 1). */
export const temperature = (value: number, options: SamplerOptions = {}): DeviceSampler =>
  sampler({ ...options, temperature: value });
/** Only the `k` most probable. */
export const topK = (k: number, options: SamplerOptions = {}): DeviceSampler => sampler({ ...options, topK: k });
/** Nucleus sampling (Holtzman et al., 2020). */
export const topP = (p: number, options: SamplerOptions = {}): DeviceSampler => sampler({ ...options, topP: p });
/** Min-p sampling (Nguyen et al., 2024). */
export const minP = (p: number, options: SamplerOptions = {}): DeviceSampler => sampler({ ...options, minP: p });

/**
 * A custom sampler. Decoding waits for it at every token, unlike with the built-in samplers.
 *
 * @example
 * // Never says the same token twice in a row.
 * const sampler = custom((distribution, { tokens }) =>
 *   Array.from(distribution.tokens).find((token) => token !== tokens.at(-1)) ?? distribution.tokens[0]);
 */
export function custom(
  choose: (distribution: Distribution, state: SamplingState) => number,
  options: { readonly candidates?: number; readonly seed?: number } = {},
): GuestSampler {
  const { candidates = MAX_CANDIDATES, seed } = options;
  checkCount('candidates', candidates, 1, MAX_CANDIDATES);
  return { kind: 'guest', candidates, seed, choose };
}

/**
 * Draws from a distribution in the inferlet, like a built-in sampler: temperature, then the cuts top-k, top-p, min-p.
 * @param random a number in [0, 1)
 */
export function draw(distribution: Distribution, options: SamplerOptions, random: number): number {
  const { temperature, topK, topP, minP } = sampler(options);
  const { tokens, logProbabilities } = distribution;
  const best = tokens[0];
  if (best === undefined)
    throw new InferletError('invalid-argument', 'The distribution is empty, so nothing can be drawn.');
  if (temperature === 0) return best;
  let count = topK === 0 ? tokens.length : Math.min(topK, tokens.length);
  const top = logProbabilities[0] ?? 0;
  const weights = new Float64Array(count);
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const weight = Math.exp(((logProbabilities[i] ?? Number.NEGATIVE_INFINITY) - top) / temperature);
    weights[i] = weight;
    sum += weight;
  }
  if (topP < 1) {
    let kept = 0;
    let reached = 0;
    while (kept < count && reached < topP * sum) reached += weights[kept++] ?? 0;
    count = Math.max(1, kept);
    sum = reached;
  }
  if (minP > 0) {
    // Weights are in descending order; the most probable token has weight 1.
    let kept = 1;
    sum = weights[0] ?? 1;
    while (kept < count && (weights[kept] ?? 0) >= minP) sum += weights[kept++] ?? 0;
    count = kept;
  }
  let remaining = random * sum;
  for (let i = 0; i < count; i++) {
    remaining -= weights[i] ?? 0;
    if (remaining < 0) return tokens[i] ?? best;
  }
  return tokens[count - 1] ?? best;
}

/**
 * Divides the probability of the tokens in `said` by `penalty` (above 1 makes them rarer), for use before {@link draw} in a custom sampler.
 * See `repetitionDivisor` for the difference from CTRL's rule. The result is ordered, most probable first.
 */
export function penalizeRepetition(distribution: Distribution, said: Iterable<number>, penalty: number): Distribution {
  check(penalty > 0 && Number.isFinite(penalty), 'penalty', 'above 0', penalty);
  const seen = new Set(said);
  const cost = Math.log(penalty);
  const rows = Array.from(distribution.tokens, (token, i) => {
    const logProbability = distribution.logProbabilities[i] ?? Number.NEGATIVE_INFINITY;
    return { token, logProbability: seen.has(token) ? logProbability - cost : logProbability };
  });
  rows.sort((a, b) => b.logProbability - a.logProbability || a.token - b.token);
  return { tokens: rows.map((row) => row.token), logProbabilities: rows.map((row) => row.logProbability) };
}

/**
 * A number in [0, 1) that depends on `seed` and `position` only, so that a draw can be repeated: two rounds of the 32-bit finalizer of
 * MurmurHash3 (Appleby, public domain) over both.
 */
export function uniform(seed: number, position: number): number {
  return mix(mix(seed ^ 0x9e3779b9) ^ Math.imul(position + 1, 0x85ebca6b)) / 0x1_0000_0000;
}

/**
 * The number in [0, 1), of 53 random bits, that the device draws for a seed and the position of the last input. With it, a sampler in the inferlet
 * draws the same numbers as the device.
 */
export function drawOf(seed: number, position: number): number {
  const a = mix(mix(seed ^ 0x9e3779b9) ^ position);
  const b = mix(mix(a ^ 0x85ebca6b) ^ seed);
  return ((a >>> 5) * 0x400_0000 + (b >>> 6)) / 0x20_0000_0000_0000;
}

/**
 * The seed after positions have been renumbered `rounds` times; the seed itself for 0. A draw depends on seed and position, so a reused
 * position needs another seed to give a different draw.
 */
export const reseed = (seed: number, rounds: number): number =>
  rounds === 0 ? seed : (seed ^ mix(Math.imul(rounds, 0x9e3779b9))) | 0;

function mix(value: number): number {
  let h = value >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
