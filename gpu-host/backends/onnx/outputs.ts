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
  if (run.wantsStates || names.length === 0) names.push('states');
  return names;
}

/** The first `k` of `width` columns of some rows, with logits turned into log-probabilities. */
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
    // Low words of little-endian int64.
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

/** {@link topRows} of a run over allowed tokens: entries with the logit −∞, when fewer than `k` tokens are allowed, become token 0. */
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
 * Attention that a member's context slots, then its inputs, receive from all its inputs together; taken from the run's `received`.
 * `rowIndex` is the row's place in the run.
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

/** The words of an int64 output: even ones are the low halves. */
function integers(tensor: Tensor | undefined): Uint32Array {
  if (!(tensor?.data instanceof BigInt64Array)) throw new TypeError('The session gave no int64 output.');
  const { buffer, byteOffset, length } = tensor.data;
  return new Uint32Array(buffer, byteOffset, length * 2);
}
