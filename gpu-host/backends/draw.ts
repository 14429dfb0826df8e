import type { Draw } from './backend.ts';

/** Number of candidates that may be drawn. When fewer than `count` tokens are allowed, the candidates after them have -Infinity. */
export function allowedCount(logProbabilities: Float32Array, offset: number, count: number): number {
  let allowed = count;
  while (allowed > 1 && logProbabilities[offset + allowed - 1] === Number.NEGATIVE_INFINITY) allowed--;
  return allowed;
}

/**
 * Draws one of `count` candidates and returns its index. The log-probabilities of the candidates at temperature 1 start at
 * `logProbabilities[offset]`, the most probable candidate first. A candidate with -Infinity is never drawn unless it is the first. The
 * temperature applies first, then top-p, then min-p to the candidates that top-p left. The random number depends on seed and position alone.
 */
export function drawPlace(draw: Draw, logProbabilities: Float32Array, offset: number, count: number): number {
  let candidateCount = allowedCount(logProbabilities, offset, count);
  const weights = new Float64Array(candidateCount);
  const top = logProbabilities[offset] as number;
  let sum = 0;
  for (let i = 0; i < candidateCount; i++) {
    const weight = Math.exp(((logProbabilities[offset + i] as number) - top) / draw.temperature);
    weights[i] = weight;
    sum += weight;
  }
  if (draw.topP < 1) {
    const target = draw.topP * sum;
    let reachedWeight = 0;
    let prefix = 0;
    while (prefix < candidateCount && reachedWeight < target) reachedWeight += weights[prefix++] as number;
    candidateCount = Math.max(1, prefix);
    sum = reachedWeight;
  }
  if (draw.minP > 0) {
    // The first weight is 1, so each weight is already a probability relative to the most probable candidate.
    let prefix = 1;
    sum = weights[0] as number;
    while (prefix < candidateCount && (weights[prefix] as number) >= draw.minP) sum += weights[prefix++] as number;
    candidateCount = prefix;
  }
  let remainingWeight = uniform(draw.seed, draw.position) * sum;
  for (let i = 0; i < candidateCount; i++) {
    remainingWeight -= weights[i] as number;
    if (remainingWeight < 0) return i;
  }
  return candidateCount - 1;
}

/** A number in [0, 1) with 53 random bits, a function of its two 32-bit arguments. */
export function uniform(seed: number, position: number): number {
  const a = mix(mix(seed ^ 0x9e3779b9) ^ position);
  const b = mix(mix(a ^ 0x85ebca6b) ^ seed);
  return ((a >>> 5) * 0x400_0000 + (b >>> 6)) / 0x20_0000_0000_0000;
}

/** The finalizer of MurmurHash3: a bijection of 32 bits in which every input bit reaches every output bit. */
function mix(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
