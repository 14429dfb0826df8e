import type { Experts, ModelConfig } from '#gpu-host/models/config.ts';
import type { StateScores, TopTokens } from '../backend.ts';
import type { Rotation } from '../rotary.ts';

/** `weight · x` for a row-major weight of `x.length` columns, as Hugging Face stores linear layers: one row per output. */
export function linear(weight: Float32Array, x: Float64Array, bias: Float32Array | null = null): Float64Array {
  const columns = x.length;
  const result = new Float64Array(weight.length / columns);
  let row = 0;
  // Four rows together take little longer than one: the additions of one row wait for each other, and those of different rows overlap.
  for (; row + 4 <= result.length; row += 4) {
    const [first, second, third] = [row * columns, (row + 1) * columns, (row + 2) * columns];
    const fourth = (row + 3) * columns;
    let [a, b, c, d] = [0, 0, 0, 0];
    if (bias !== null) {
      a = bias[row];
      b = bias[row + 1];
      c = bias[row + 2];
      d = bias[row + 3];
    }
    for (let column = 0; column < columns; column++) {
      const value = x[column];
      a += weight[first + column] * value;
      b += weight[second + column] * value;
      c += weight[third + column] * value;
      d += weight[fourth + column] * value;
    }
    result[row] = a;
    result[row + 1] = b;
    result[row + 2] = c;
    result[row + 3] = d;
  }
  for (; row < result.length; row++) {
    let sum = bias === null ? 0 : bias[row];
    for (let column = 0; column < columns; column++) sum += weight[row * columns + column] * x[column];
    result[row] = sum;
  }
  return result;
}

/**
 * Rounds `x` in blocks of `blockSize` values to 127 levels on either side of zero, up to the block's largest magnitude (ties to the even
 * level), and scales it back. ONNX Runtime's 8-bit products round their inputs in the same way, float32 steps included.
 */
export function roundToBytes(x: Float64Array, blockSize: number): Float64Array {
  const result = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += blockSize) {
    const block = Float32Array.from(x.subarray(start, start + blockSize));
    const largest = block.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (largest === 0) continue;
    const scale = Math.fround(largest / 127);
    const inverse = Math.fround(1 / scale);
    block.forEach((value, i) => {
      result[start + i] = roundToEven(Math.fround(value * inverse)) * scale;
    });
  }
  return result;
}

/** `x` rounded to the nearest bfloat16, the upper half of a float32 (ties to even). */
export function roundToBfloat16(x: Float64Array): Float64Array {
  const words = new Uint32Array(Float32Array.from(x).buffer);
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as number;
    words[i] = ((word + 0x7fff + ((word >>> 16) & 1)) >>> 16) << 16;
  }
  return Float64Array.from(new Float32Array(words.buffer));
}

/** Largest float8 (e4m3) value, fraction bits, and exponent of the smallest normal numbers. */
const FLOAT8 = { most: 448, fraction: 3, leastExponent: -6 } as const;

/**
 * Rounds each head's values to float8 (e4m3), as kernels with 8-bit keys and values do. The scale is the least power of two from 2^-24 to
 * 2^7 that brings every value within the largest float8.
 */
export function roundHeadsToFloat8(x: Float64Array, headDim: number): Float64Array {
  const rounded = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += headDim) {
    const head = x.subarray(start, start + headDim);
    const largest = head.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    let scale = 2 ** -24;
    while (scale < 2 ** 7 && largest > FLOAT8.most * scale) scale *= 2;
    head.forEach((value, i) => {
      rounded[start + i] = float8(value / scale) * scale;
    });
  }
  return rounded;
}

function float8(x: number): number {
  const size = Math.min(Math.abs(x), FLOAT8.most);
  const exponent = Math.max(Math.floor(Math.log2(size)), FLOAT8.leastExponent);
  const step = 2 ** (exponent - FLOAT8.fraction);
  return Math.sign(x) * Math.min(roundToEven(size / step) * step, FLOAT8.most);
}

function roundToEven(x: number): number {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

/** `x` scaled to a root mean square of one, times a learned weight (Zhang and Sennrich, 2019). */
export function rmsNorm(x: Float64Array, weight: Float32Array, epsilon: number): Float64Array {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + epsilon);
  return x.map((value, i) => value * scale * weight[i]);
}

/** `x` brought to a mean of zero and a variance of one, times a learned weight, plus a learned bias (Ba et al., 2016). */
export function layerNorm(x: Float64Array, weight: Float32Array, bias: Float32Array, epsilon: number): Float64Array {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  const scale = 1 / Math.sqrt(variance + epsilon);
  return x.map((value, i) => (value - mean) * scale * weight[i] + bias[i]);
}

/** Turns each pair of one head by `position × frequency[i]`, and scales it, in place. */
export function rotate(head: Float64Array, position: number, { frequencies, scale, pairs }: Rotation): void {
  const half = frequencies.length;
  for (let i = 0; i < half; i++) {
    const cos = Math.cos(position * frequencies[i]) * scale;
    const sin = Math.sin(position * frequencies[i]) * scale;
    const [first, second] = pairs === 'halves' ? [i, i + half] : [2 * i, 2 * i + 1];
    const a = head[first];
    const b = head[second];
    head[first] = a * cos - b * sin;
    head[second] = b * cos + a * sin;
  }
}

/** How the products of queries and keys become scores. */
export interface Scoring {
  readonly scale: number;
  readonly cap: number | null;
  /** Score that takes part in the softmax and has no key. */
  readonly sink: number | undefined;
}

/** Attention of one query head to each of its visible keys: the softmax of their scores. */
export function attentionWeights(
  query: Float64Array,
  keys: readonly Float64Array[],
  { scale, cap, sink }: Scoring,
): number[] {
  const scores = keys.map((key) => softcap(dot(query, key) * scale, cap));
  const largest = scores.reduce((a, b) => Math.max(a, b), sink ?? Number.NEGATIVE_INFINITY);
  const powers = scores.map((score) => Math.exp(score - largest));
  const total = powers.reduce((a, b) => a + b, sink === undefined ? 0 : Math.exp(sink - largest));
  return powers.map((power) => power / total);
}

/** `cap × tanh(x / cap)`; `x` without a cap. */
export function softcap(x: number, cap: number | null): number {
  return cap === null ? x : cap * Math.tanh(x / cap);
}

/** The product of a feed-forward network's two branches. */
export function gated(
  { activation, activationLimit: limit }: ModelConfig,
  gate: Float64Array,
  up: Float64Array,
): Float64Array {
  return gate.map((g, i) => {
    const u = up[i];
    if (activation === 'gelu') return gelu(g) * u;
    if (activation === 'silu') return silu(g) * u;
    // gpt-oss: the gate is bounded above, the other branch on both sides; sigmoid of 1.702 x approximates the normal distribution's.
    const clamped = Math.min(g, limit);
    return (clamped / (1 + Math.exp(-1.702 * clamped))) * (Math.max(-limit, Math.min(u, limit)) + 1);
  });
}

/** Experts that a router chooses for one token, most probable first (equal ones by number), with their weights. */
export function chosenExperts({ used, router }: Experts, scores: Float64Array): [expert: number, weight: number][] {
  const order = Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a] || a - b);
  const chosen = order.slice(0, used);
  const largest = scores[order[0]];
  const powers = scores.map((score) => Math.exp(score - largest));
  const over = router === 'all' ? order : chosen;
  const total = over.reduce((sum, expert) => sum + powers[expert], 0);
  return chosen.map((expert) => [expert, powers[expert] / total]);
}

/** The sum of `values`, each times its weight; zeros when there are none. */
export function weightedSum(weights: readonly number[], values: readonly Float64Array[], size: number): Float64Array {
  const result = new Float64Array(size);
  values.forEach((value, j) => {
    for (let i = 0; i < size; i++) result[i] += weights[j] * value[i];
  });
  return result;
}

/** GELU with tanh (Hendrycks and Gimpel, 2016). */
function gelu(x: number): number {
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

/** `x × sigmoid(x)`. */
export function silu(x: number): number {
  return x / (1 + Math.exp(-x));
}

/**
 * The tokens of the `topK` largest logits of each row, equal logits by token id, with the logarithm of their softmax. Order and softmax cover
 * the tokens that are `allowed` (see `TopRequest`) and whose logit is not -Infinity.
 */
export function topTokens(rows: readonly Float64Array[], topK: number, allowed?: Uint32Array): TopTokens {
  const tokens = new Uint32Array(rows.length * topK);
  const logProbabilities = new Float32Array(rows.length * topK).fill(Number.NEGATIVE_INFINITY);
  const words = (allowed?.length ?? 0) / rows.length;
  rows.forEach((logits, row) => {
    const candidates = Array.from(logits.keys()).filter(
      (token) =>
        logits[token] !== Number.NEGATIVE_INFINITY &&
        (allowed === undefined || ((allowed[row * words + (token >> 5)] >>> (token & 31)) & 1) === 1),
    );
    const total = logSumOfPowers(Float64Array.from(candidates, (token) => logits[token]));
    const order = candidates.sort((a, b) => logits[b] - logits[a] || a - b).slice(0, topK);
    order.forEach((token, k) => {
      tokens[row * topK + k] = token;
      logProbabilities[row * topK + k] = logits[token] - total;
    });
  });
  return { topK, tokens, logProbabilities };
}

/** Log-probabilities of `tokens[row]` in each row of logits, and each row's entropy, `−Σ p ln p`. */
export function scoreTokens(rows: readonly Float64Array[], tokens: readonly Uint32Array[]): StateScores {
  const logProbabilities = rows.map((logits, row) => {
    const total = logSumOfPowers(logits);
    return Float32Array.from(tokens[row], (token) => logits[token] - total);
  });
  const entropies = Float32Array.from(rows, (logits) => {
    const total = logSumOfPowers(logits);
    return -logits.reduce((sum, logit) => sum + Math.exp(logit - total) * (logit - total), 0);
  });
  return { logProbabilities, entropies };
}

/** `ln Σ e^x`, computed relative to the largest value, so that no power overflows. */
function logSumOfPowers(values: Float64Array): number {
  const largest = values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return largest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - largest), 0));
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
