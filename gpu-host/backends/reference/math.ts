import type { TopTokens } from '../backend.ts';

/** `weight · x` for a row-major weight of `x.length` columns, as Hugging Face stores linear layers: one row per output. */
export function linear(weight: Float32Array, x: Float64Array, bias: Float32Array | null = null): Float64Array {
  const columns = x.length;
  const result = new Float64Array(weight.length / columns);
  for (let row = 0; row < result.length; row++) {
    let sum = bias === null ? 0 : bias[row];
    for (let column = 0; column < columns; column++) sum += weight[row * columns + column] * x[column];
    result[row] = sum;
  }
  return result;
}

/** `x` scaled to a root mean square of one, times a learned weight (Zhang and Sennrich, 2019). */
export function rmsNorm(x: Float64Array, weight: Float32Array, epsilon: number): Float64Array {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + epsilon);
  return x.map((value, i) => value * scale * weight[i]);
}

/** Turns each pair (i, i + half) of one head by `position × frequency[i]` (RoPE, Su et al., 2021), in place. */
export function rotate(head: Float64Array, position: number, frequencies: Float64Array): void {
  const half = frequencies.length;
  for (let i = 0; i < half; i++) {
    const cos = Math.cos(position * frequencies[i]);
    const sin = Math.sin(position * frequencies[i]);
    const a = head[i];
    const b = head[i + half];
    head[i] = a * cos - b * sin;
    head[i + half] = b * cos + a * sin;
  }
}

/** One query head over its visible keys; zeros when there are none. */
export function attend(query: Float64Array, keys: Float64Array[], values: Float64Array[]): Float64Array {
  const result = new Float64Array(query.length);
  const scores = keys.map((key) => dot(query, key) / Math.sqrt(query.length));
  const largest = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const weights = scores.map((score) => Math.exp(score - largest));
  const total = weights.reduce((a, b) => a + b, 0);
  values.forEach((value, j) => {
    for (let i = 0; i < result.length; i++) result[i] += (weights[j] / total) * value[i];
  });
  return result;
}

/** `x × sigmoid(x)`. */
export function silu(x: number): number {
  return x / (1 + Math.exp(-x));
}

/** The `topK` largest of each row of logits, with the logarithm of their softmax; equal logits by token id. */
export function topTokens(rows: readonly Float64Array[], topK: number): TopTokens {
  const tokens = new Uint32Array(rows.length * topK);
  const logProbabilities = new Float32Array(rows.length * topK);
  rows.forEach((logits, row) => {
    const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
    const largest = logits[order[0]];
    let total = 0;
    for (const logit of logits) total += Math.exp(logit - largest);
    for (let k = 0; k < topK; k++) {
      tokens[row * topK + k] = order[k];
      logProbabilities[row * topK + k] = logits[order[k]] - largest - Math.log(total);
    }
  });
  return { topK, tokens, logProbabilities };
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
