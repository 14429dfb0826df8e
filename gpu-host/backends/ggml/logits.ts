import {
  type Draw,
  NOTHING_DRAWN,
  type RowChanges,
  type StateScores,
  type TopRequest,
  type TopTokens,
} from '../backend.ts';
import { drawFromAll, drawPlace, drawPlaceOfFirst } from '../draw.ts';
import { tokensOnly } from '../tokens-only.ts';

/** Part of the vocabulary from which on sorting it is faster than selecting the first tokens. */
const SORTED_PART = 1 / 8;

/**
 * Answers a request from its rows of logits, and changes the logits as the request says.
 * @param logits `rows × vocabularySize`
 */
export function answer(
  request: TopRequest,
  logits: Float32Array,
  vocabularySize: number,
): TopTokens & { readonly drawn?: Uint32Array } {
  const { rows, allowed, changes, draws } = request;
  const topK = Math.min(request.topK, vocabularySize);
  const rowOf = (row: number) => logits.subarray(row * vocabularySize, (row + 1) * vocabularySize);
  if (changes) applyChanges(rowOf(0), changes);
  if (allowed) {
    const words = allowed.length / rows;
    for (let row = 0; row < rows; row++) hideOthers(rowOf(row), allowed.subarray(row * words, (row + 1) * words));
  }
  if (draws) {
    const drawn = Uint32Array.from(draws, (draw, row) => drawnToken(draw, rowOf(row), topK));
    return { topK, drawn, tokens: new Uint32Array(0), logProbabilities: new Float32Array(0) };
  }
  const top = topOfRows(logits, rows, topK, vocabularySize, request.tokensOnly !== true);
  return request.tokensOnly ? tokensOnly(top) : top;
}

/** The `topK` most probable tokens of each row. Without `wantsProbabilities`, the probabilities only tell which rows are NaN. */
export function topOfRows(
  logits: Float32Array,
  rows: number,
  topK: number,
  vocabularySize: number,
  wantsProbabilities = true,
): TopTokens {
  const tokens = new Uint32Array(rows * topK);
  const logProbabilities = new Float32Array(rows * topK);
  for (let row = 0; row < rows; row++) {
    const own = logits.subarray(row * vocabularySize, (row + 1) * vocabularySize);
    const first = firstTokens(own, topK);
    if (first === undefined) {
      logProbabilities.fill(Number.NaN, row * topK, (row + 1) * topK);
      continue;
    }
    const total = wantsProbabilities ? logSum(own, own[first[0] as number] as number) : 0;
    first.forEach((token, i) => {
      const logit = own[token] as number;
      // Entries that are left over are token 0.
      if (logit !== Number.NEGATIVE_INFINITY) tokens[row * topK + i] = token;
      logProbabilities[row * topK + i] = logit === Number.NEGATIVE_INFINITY ? logit : logit - total;
    });
  }
  return { topK, tokens, logProbabilities };
}

/** Log-probabilities of given tokens, and the entropy, of each row. */
export function scoresOfRows(
  logits: Float32Array,
  vocabularySize: number,
  tokens: readonly Uint32Array[],
): StateScores {
  const entropies = new Float32Array(tokens.length);
  const logProbabilities = tokens.map((list, row) => {
    const own = logits.subarray(row * vocabularySize, (row + 1) * vocabularySize);
    let most = Number.NEGATIVE_INFINITY;
    for (let i = 0; i < own.length; i++) if ((own[i] as number) > most) most = own[i] as number;
    let sum = 0;
    let weighted = 0;
    for (let i = 0; i < own.length; i++) {
      const distance = (own[i] as number) - most;
      const power = Math.exp(distance);
      sum += power;
      if (power > 0) weighted += power * distance;
    }
    entropies[row] = Math.log(sum) - weighted / sum;
    const total = most + Math.log(sum);
    return Float32Array.from(list, (token) => (own[token] as number) - total);
  });
  return { logProbabilities, entropies };
}

function applyChanges(logits: Float32Array, { tokens, values }: RowChanges): void {
  // The flag of chosen tokens matters for `picked` inputs alone, which this backend does not take.
  tokens.forEach((flagged, i) => {
    (logits[flagged & 0x7fff_ffff] as number) += values[i] as number;
  });
}

/** Sets the logits of tokens that are not allowed to -Infinity. */
function hideOthers(logits: Float32Array, allowed: Uint32Array): void {
  for (let token = 0; token < logits.length; token++) {
    if ((((allowed[token >> 5] as number) >>> (token & 31)) & 1) === 0) logits[token] = Number.NEGATIVE_INFINITY;
  }
}

/** The token that a draw gives. Among the `count` most probable tokens it nearly always falls; else all tokens decide. */
function drawnToken(draw: Draw, logits: Float32Array, count: number): number {
  const first = firstTokens(logits, count);
  const largest = first && (logits[first[0] as number] as number);
  if (first === undefined || largest === undefined || largest === Number.NEGATIVE_INFINITY) return NOTHING_DRAWN;
  const firstLogits = Float32Array.from(first, (token) => logits[token] as number);
  const { temperature, topK } = draw;
  if (count === logits.length || (topK > 0 && topK <= count))
    return first[drawPlace(draw, firstLogits, 0, count)] as number;
  if (topK === 0) {
    let total = 0;
    for (let token = 0; token < logits.length; token++)
      total += Math.exp(((logits[token] as number) - largest) / temperature);
    const place = drawPlaceOfFirst(draw, firstLogits, 0, count, total);
    if (place !== undefined) return first[place] as number;
  }
  const weights = logits.map((logit) => Math.exp((logit - largest) / temperature));
  return drawFromAll(draw, { logits, largest, weights });
}

/** The first `count` tokens in order of falling logit, then rising id; undefined when a logit is NaN. */
function firstTokens(logits: Float32Array, count: number): Uint32Array | undefined {
  let best = 0;
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token] as number;
    if (Number.isNaN(logit)) return undefined;
    if (logit > (logits[best] as number)) best = token;
  }
  if (count === 1) return Uint32Array.of(best);
  if (count >= logits.length * SORTED_PART) {
    const order = Uint32Array.from(logits.keys());
    return order.sort((a, b) => (logits[b] as number) - (logits[a] as number) || a - b).subarray(0, count);
  }
  return selected(logits, count);
}

/** {@link firstTokens} of a row without NaN: keeps the first tokens in order while it reads the row. */
function selected(logits: Float32Array, count: number): Uint32Array {
  const first = new Uint32Array(count);
  let taken = 0;
  let least = Number.NEGATIVE_INFINITY;
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token] as number;
    // Of equal logits, the one with the lower id came first.
    if (taken === count && logit <= least) continue;
    let low = 0;
    let high = taken;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((logits[first[middle] as number] as number) >= logit) low = middle + 1;
      else high = middle;
    }
    if (taken < count) taken++;
    first.copyWithin(low + 1, low, taken - 1);
    first[low] = token;
    least = logits[first[taken - 1] as number] as number;
  }
  return first;
}

/** `ln Σ e^x`, computed relative to the largest value, so that no power overflows. */
function logSum(values: Float32Array, largest: number): number {
  if (largest === Number.NEGATIVE_INFINITY) return largest;
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += Math.exp((values[i] as number) - largest);
  return largest + Math.log(sum);
}
