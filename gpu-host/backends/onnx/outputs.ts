import type { InferenceSession, Tensor } from 'onnxruntime-node';
import { NOTHING_DRAWN, type TopTokens } from '../backend.ts';
import type { RunShape } from './bias.ts';
import type { RunFeeds } from './feeds.ts';
import { columnOf, type Row, type RowMember } from './rows.ts';

export type RunResult = InferenceSession.ReturnType;

export interface TopNames {
  readonly logits: string;
  readonly tokens: string;
  readonly logSum: string;
}

export const TOP: TopNames = { logits: 'top_logits', tokens: 'top_tokens', logSum: 'log_sum' };
const ALLOWED_TOP: TopNames = {
  logits: 'allowed_top_logits',
  tokens: 'allowed_top_tokens',
  logSum: 'allowed_log_sum',
};

/** Names of the outputs that the run's callers want. ONNX Runtime copies every fetched output into JavaScript. */
export function fetches(run: RunFeeds): string[] {
  const names: string[] = [];
  if (run.writes) names.push('new_kv');
  if (run.isMasked) names.push(ALLOWED_TOP.tokens, ALLOWED_TOP.logits, ALLOWED_TOP.logSum);
  else {
    if (run.headRows > 0) names.push(TOP.tokens, TOP.logits);
    if (run.wantsLogSum) names.push(TOP.logSum);
  }
  if (run.wantsAttention) names.push('received');
  // A session must fetch at least one output.
  if (run.wantsStates || names.length === 0) names.push('states');
  return names;
}

/** The `k` most probable tokens of `rows` rows, from `firstRow` on. The session's rows have `width` tokens each, the most probable first. */
export function topRows(
  result: RunResult,
  names: TopNames,
  firstRow: number,
  rows: number,
  width: number,
  k: number,
  wantsProbabilities: boolean,
): TopTokens {
  const ids = integers(result[names.tokens]);
  const tokens = new Uint32Array(rows * k);
  for (let row = 0; row < rows; row++) {
    const from = (firstRow + row) * width;
    // Token ids are little-endian int64: the low words have even indexes.
    for (let i = 0; i < k; i++) tokens[row * k + i] = ids[(from + i) * 2];
  }
  const logits = floats(result[names.logits]);
  if (!wantsProbabilities) {
    for (let row = 0; row < rows; row++) {
      if (Number.isNaN(logits[(firstRow + row) * width])) tokens[row * k] = NOTHING_DRAWN;
    }
    return { topK: k, tokens, logProbabilities: new Float32Array(0) };
  }
  const logSums = floats(result[names.logSum]);
  const logProbabilities = new Float32Array(rows * k);
  for (let row = 0; row < rows; row++) {
    const from = (firstRow + row) * width;
    const logSum = logSums[firstRow + row];
    for (let i = 0; i < k; i++) logProbabilities[row * k + i] = logits[from + i] - logSum;
  }
  return { topK: k, tokens, logProbabilities };
}

/** {@link topRows} of a run over allowed tokens. When a row allows fewer than `k` tokens, its other entries, with the logit −∞, become token 0. */
export function allowedTopRows(
  result: RunResult,
  firstRow: number,
  rows: number,
  width: number,
  k: number,
  wantsProbabilities: boolean,
): TopTokens {
  const top = topRows(result, ALLOWED_TOP, firstRow, rows, width, k, wantsProbabilities);
  const logits = floats(result[ALLOWED_TOP.logits]);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < k; i++) {
      if (logits[(firstRow + row) * width + i] !== Number.NEGATIVE_INFINITY) continue;
      top.tokens[row * k + i] = 0;
      if (wantsProbabilities) top.logProbabilities[row * k + i] = Number.NEGATIVE_INFINITY;
    }
  }
  return top;
}

/**
 * The attention that each context slot of a member, then each of its inputs, receives from all inputs of the member together.
 * @param rowIndex index of the member's row in the run
 */
export function receivedAttention(
  result: RunResult,
  { tokens, width }: RunShape,
  rowIndex: number,
  row: Row,
  { sequence, firstInput, firstOwn, links }: RowMember,
): Float32Array {
  const weights = floats(result.received);
  const inputs = sequence.positions.length;
  const context = sequence.context.length;
  const columns = Uint32Array.from({ length: context + inputs }, (_, j) => {
    if (j >= context) return firstInput + j - context;
    if (links !== null) return columnOf(links[j], tokens);
    return tokens + (j < row.shared ? j : firstOwn + j - row.shared);
  });
  const sums = new Float64Array(columns.length);
  for (let t = 0; t < inputs; t++) {
    const start = (rowIndex * tokens + firstInput + t) * width;
    for (let j = 0; j < columns.length; j++) sums[j] += weights[start + columns[j]];
  }
  return Float32Array.from(sums);
}

export function floats(tensor: Tensor | undefined): Float32Array {
  if (!(tensor?.data instanceof Float32Array)) throw new TypeError('The session gave no float32 output.');
  return tensor.data;
}

/** An int64 output as 32-bit words: the word at an even index is the low half of a value. */
function integers(tensor: Tensor | undefined): Uint32Array {
  if (!(tensor?.data instanceof BigInt64Array)) throw new TypeError('The session gave no int64 output.');
  const { buffer, byteOffset, length } = tensor.data;
  return new Uint32Array(buffer, byteOffset, length * 2);
}
