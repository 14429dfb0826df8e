import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { TopRequest, TopTokens } from '../backend.ts';
import { allowedWords } from '../check.ts';
import { tokensOnly } from '../tokens-only.ts';
import type { EngineHandle } from './addon.ts';
import { MAX_TOP_K } from './batch-words.ts';

/*
 * Finds more top tokens than the device can find, up to the whole vocabulary: the device scores every token of a row, and this module
 * sorts them. Slow; the handlers never ask for so many tokens.
 */

export function needsWholeRows({ vocabularySize }: ModelConfig, topK: number): boolean {
  return Math.min(topK, vocabularySize) > MAX_TOP_K;
}

/** The top tokens after each of `rows` states. */
export async function topOfWholeRows(
  score: EngineHandle['score'],
  config: ModelConfig,
  states: Float32Array,
  request: Pick<TopRequest, 'rows' | 'topK' | 'allowed' | 'tokensOnly'>,
): Promise<TopTokens> {
  const { vocabularySize, hiddenSize } = config;
  const { rows, allowed } = request;
  const topK = Math.min(request.topK, vocabularySize);
  const tokens = new Uint32Array(rows * topK);
  const logProbabilities = new Float32Array(rows * topK).fill(Number.NEGATIVE_INFINITY);
  const vocabulary = Uint32Array.from({ length: vocabularySize }, (_, token) => token);
  const listStarts = Int32Array.of(0, vocabularySize);
  const words = allowedWords(config);
  for (let row = 0; row < rows; row++) {
    const state = states.subarray(row * hiddenSize, (row + 1) * hiddenSize);
    const scores = new Float32Array(await score(state, 1, vocabulary, listStarts), 0, vocabularySize);
    const mask = allowed?.subarray(row * words, (row + 1) * words);
    const candidates = mask
      ? vocabulary.filter((token) => (((mask[token >> 5] as number) >> (token & 31)) & 1) === 1)
      : vocabulary;
    // The scores are log-probabilities over the whole vocabulary; with a mask, they must be relative to the allowed tokens.
    const allowedLogSum = mask ? logSum(scores, candidates) : 0;
    const topIds = candidates
      .toSorted((a, b) => (scores[b] as number) - (scores[a] as number) || a - b)
      .subarray(0, topK);
    tokens.set(topIds, row * topK);
    logProbabilities.set(
      Float32Array.from(topIds, (token) => (scores[token] as number) - allowedLogSum),
      row * topK,
    );
  }
  const top = { topK, tokens, logProbabilities };
  return request.tokensOnly === true ? tokensOnly(top) : top;
}

/** The logarithm of the probability of all candidates together. */
function logSum(scores: Float32Array, candidates: Uint32Array): number {
  let largest = Number.NEGATIVE_INFINITY;
  for (const token of candidates) largest = Math.max(largest, scores[token] as number);
  let sum = 0;
  for (const token of candidates) sum += Math.exp((scores[token] as number) - largest);
  return largest + Math.log(sum);
}
