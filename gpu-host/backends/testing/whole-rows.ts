import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { Backend, SequenceInput, SequenceOutput, TopRequest, TopTokens } from '../backend.ts';
import { allowedWords, InvalidInput } from '../check.ts';
import { tokensOnly } from '../tokens-only.ts';

/** Most top tokens of a row that the device can find; MAX_TOP_K of `../cuda/native/kernels/head/head.h`. */
export const MAX_TOP_K = 2048;

/**
 * The backend of a card that also finds more top tokens than the device can, up to the whole vocabulary, so that tests compare all of them: the device
 * scores every token of a row, and this module sorts them. The handlers never ask for so many tokens.
 */
export function withWholeRows(backend: Backend): Backend {
  const methods: Pick<Backend, 'forward' | 'project'> = {
    async forward(batch) {
      const outputs = await backend.forward(batch.map((sequence) => deviceRequest(backend.config, sequence)));
      return Promise.all(outputs.map((output, i) => withTop(backend, batch[i]!, output)));
    },
    async project(states, count, topK) {
      if (!needsWholeRows(backend.config, topK)) return backend.project(states, count, topK);
      return topOfWholeRows(backend, states, { rows: count, topK });
    },
  };
  return new Proxy(backend, {
    get(target, name) {
      if (name === 'forward' || name === 'project') return methods[name];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

function needsWholeRows({ vocabularySize }: ModelConfig, topK: number): boolean {
  return Math.min(topK, vocabularySize) > MAX_TOP_K;
}

/** The request to the device. It asks for states if the caller wants more top tokens than the device can find. */
function deviceRequest(config: ModelConfig, sequence: SequenceInput): SequenceInput {
  const { output } = sequence;
  if (output.kind !== 'top' || !needsWholeRows(config, output.topK)) return sequence;
  if (output.changes)
    throw new InvalidInput(`Changed logits with ${output.topK} tokens a row; ${MAX_TOP_K} is the limit.`);
  return { ...sequence, output: { kind: 'states', rows: output.rows } };
}

async function withTop(
  backend: Backend,
  { output: requestedOutput }: SequenceInput,
  output: SequenceOutput,
): Promise<SequenceOutput> {
  if (requestedOutput.kind !== 'top' || output.kind !== 'states') return output;
  const { states, ...rest } = output;
  const top = await topOfWholeRows(backend, states, requestedOutput);
  return { ...rest, ...top, kind: 'top', ...(requestedOutput.states ? { states } : {}) };
}

/** The top tokens after each of `rows` states. */
async function topOfWholeRows(
  backend: Backend,
  states: Float32Array,
  request: Pick<TopRequest, 'rows' | 'topK' | 'allowed' | 'tokensOnly'>,
): Promise<TopTokens> {
  const { vocabularySize, hiddenSize } = backend.config;
  const { rows, allowed } = request;
  const topK = Math.min(request.topK, vocabularySize);
  const tokens = new Uint32Array(rows * topK);
  const logProbabilities = new Float32Array(rows * topK).fill(Number.NEGATIVE_INFINITY);
  const vocabulary = Uint32Array.from({ length: vocabularySize }, (_, token) => token);
  const words = allowedWords(backend.config);
  for (let row = 0; row < rows; row++) {
    const state = states.subarray(row * hiddenSize, (row + 1) * hiddenSize);
    const scores = (await backend.score(state, 1, [vocabulary])).logProbabilities[0]!;
    const mask = allowed?.subarray(row * words, (row + 1) * words);
    const candidates = mask
      ? vocabulary.filter((token) => ((mask[token >> 5]! >> (token & 31)) & 1) === 1)
      : vocabulary;
    // The scores are log-probabilities over the whole vocabulary; with a mask, they must be relative to the allowed tokens.
    const allowedLogSum = mask ? logSum(scores, candidates) : 0;
    const topIds = candidates.toSorted((a, b) => scores[b]! - scores[a]! || a - b).subarray(0, topK);
    tokens.set(topIds, row * topK);
    logProbabilities.set(
      Float32Array.from(topIds, (token) => scores[token]! - allowedLogSum),
      row * topK,
    );
  }
  const top = { topK, tokens, logProbabilities };
  return request.tokensOnly === true ? tokensOnly(top) : top;
}

/** The logarithm of the probability of all candidates together. */
function logSum(scores: Float32Array, candidates: Uint32Array): number {
  let largest = Number.NEGATIVE_INFINITY;
  for (const token of candidates) largest = Math.max(largest, scores[token]!);
  let sum = 0;
  for (const token of candidates) sum += Math.exp(scores[token]! - largest);
  return largest + Math.log(sum);
}
