import type { InferenceSession, Tensor } from 'onnxruntime-node';
import { type Draw, NOTHING_DRAWN, type TopTokens } from '../backend.ts';
import { drawFromAll, drawPlace, drawPlaceOfFirst, type WholeRow } from '../draw.ts';
import type { RunFeeds } from './feeds.ts';
import type { RunShape } from './packing.ts';
import { columnOf, type Row, type RowMember } from './rows.ts';

export type RunResult = InferenceSession.ReturnType;

/** The outputs of a run's head, over the whole vocabulary or over allowed tokens. */
interface TopNames {
  readonly logits: string;
  readonly tokens: string;
  readonly sum: string;
  readonly isOpen: string;
  readonly openLogits: string;
  readonly openPowers: string;
}

const TOP: TopNames = {
  logits: 'top_logits',
  tokens: 'top_tokens',
  sum: 'sum',
  isOpen: 'is_open',
  openLogits: 'open_logits',
  openPowers: 'open_powers',
};
const ALLOWED_TOP: TopNames = {
  logits: 'allowed_top_logits',
  tokens: 'allowed_top_tokens',
  sum: 'allowed_sum',
  isOpen: 'allowed_is_open',
  openLogits: 'allowed_open_logits',
  openPowers: 'allowed_open_powers',
};

/** Names of the outputs that the run's callers want. ONNX Runtime copies every fetched output into JavaScript. */
export function fetches(run: RunFeeds): string[] {
  const names: string[] = [];
  if (run.writes) names.push('new_kv');
  const top = namesOf(run);
  if (run.headRows > 0) names.push(top.tokens, top.logits);
  if (run.wantsSums) names.push(top.sum);
  if (run.mayBeOpen) names.push(top.isOpen, top.openLogits, top.openPowers);
  if (run.wantsAttention) names.push('received');
  // A session must fetch at least one output.
  if (run.wantsStates || names.length === 0) names.push('states');
  return names;
}

function namesOf(run: RunFeeds): TopNames {
  return run.isMasked ? ALLOWED_TOP : TOP;
}

/** Logits and token ids of the rows of a session, `width` for each row, the most probable token first. */
interface TopRows {
  readonly ids: Uint32Array;
  readonly logits: Float32Array;
  readonly width: number;
}

/** The `k` most probable tokens of `rows` rows from `firstRow` on, with probabilities when the logarithm of each row's sum is given. */
function topRows(
  { ids, logits, width }: TopRows,
  firstRow: number,
  rows: number,
  k: number,
  logSumOf: ((row: number) => number) | undefined,
): TopTokens {
  const tokens = new Uint32Array(rows * k);
  const logProbabilities = new Float32Array(logSumOf ? rows * k : 0);
  for (let row = 0; row < rows; row++) {
    const from = (firstRow + row) * width;
    const logSum = logSumOf?.(firstRow + row) ?? 0;
    for (let i = 0; i < k; i++) {
      const logit = logits[from + i];
      const isLeftOut = logit === Number.NEGATIVE_INFINITY;
      // Token ids are little-endian int64: the low words have even indexes.
      if (!isLeftOut) tokens[row * k + i] = ids[(from + i) * 2];
      if (logSumOf) logProbabilities[row * k + i] = isLeftOut ? logit : logit - logSum;
    }
    if (!logSumOf && Number.isNaN(logits[from])) tokens[row * k] = NOTHING_DRAWN;
  }
  return { topK: k, tokens, logProbabilities };
}

/** What a run of the decoder tells about the tokens after its head rows. */
export class RunTops {
  readonly #top: TopRows;
  readonly #sums: Float32Array | undefined;
  readonly #vocabularySize: number;
  /** The open rows; see `addSums`. */
  readonly #openRows = new Map<number, WholeRow>();

  /** `run` has head rows. */
  constructor(result: RunResult, run: RunFeeds, vocabularySize: number) {
    const names = namesOf(run);
    this.#top = { ids: integers(result[names.tokens]), logits: floats(result[names.logits]), width: run.topK };
    this.#sums = run.wantsSums ? floats(result[names.sum]) : undefined;
    this.#vocabularySize = vocabularySize;
    if (!run.mayBeOpen) return;
    const logits = floats(result[names.openLogits]);
    const powers = floats(result[names.openPowers]);
    booleans(result[names.isOpen]).forEach((isOpen, row) => {
      if (!isOpen) return;
      const start = this.#openRows.size * vocabularySize;
      const end = start + vocabularySize;
      const largest = this.#top.logits[row * run.topK];
      this.#openRows.set(row, { logits: logits.subarray(start, end), largest, weights: powers.subarray(start, end) });
    });
  }

  /** The `k` most probable tokens of `rows` rows, `firstRow` being the first. */
  tokens(firstRow: number, rows: number, k: number, wantsProbabilities: boolean): TopTokens {
    const { logits, width } = this.#top;
    const logSumOf = (row: number): number => Math.log(this.#sumOf(row)) + logits[row * width];
    return topRows(this.#top, firstRow, rows, k, wantsProbabilities ? logSumOf : undefined);
  }

  /** The token that a draw gives in a row, or `NOTHING_DRAWN`. */
  draw(row: number, draw: Draw): number {
    const { ids, logits, width } = this.#top;
    const offset = row * width;
    const largest = logits[offset];
    if (Number.isNaN(largest) || largest === Number.NEGATIVE_INFINITY) return NOTHING_DRAWN;
    const openRow = this.#openRows.get(row);
    if (openRow) return drawFromAll(draw, openRow);
    const isWhole = width === this.#vocabularySize || (draw.topK > 0 && draw.topK <= width);
    const place = isWhole
      ? drawPlace(draw, logits, offset, width)
      : drawPlaceOfFirst(draw, logits, offset, width, this.#sumOf(row));
    // The graph leaves a row closed only if its top tokens decide the draw.
    return ids[(offset + (place ?? width - 1)) * 2];
  }

  #sumOf(row: number): number {
    if (!this.#sums) throw new TypeError('The session gave no sums.');
    return this.#sums[row];
  }
}

/** The most probable tokens of a run of the head alone. */
export function projectedRows(result: RunResult, rows: number, k: number): TopTokens {
  const top = { ids: integers(result.top_tokens), logits: floats(result.top_logits), width: k };
  const logSums = floats(result.log_sum);
  return topRows(top, 0, rows, k, (row) => logSums[row]);
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

function booleans(tensor: Tensor | undefined): Uint8Array {
  if (!(tensor?.data instanceof Uint8Array)) throw new TypeError('The session gave no boolean output.');
  return tensor.data;
}

/** An int64 output as 32-bit words: the word at an even index is the low half of a value. */
function integers(tensor: Tensor | undefined): Uint32Array {
  if (!(tensor?.data instanceof BigInt64Array)) throw new TypeError('The session gave no int64 output.');
  const { buffer, byteOffset, length } = tensor.data;
  return new Uint32Array(buffer, byteOffset, length * 2);
}
