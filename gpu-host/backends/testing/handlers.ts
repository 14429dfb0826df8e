import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { Backend, SequenceInput, SequenceOutput } from '../backend.ts';
import { allowedWords } from '../check.ts';
import { type Scenario, take } from './mask-kinds.ts';
import { Random, values, wholeVocabulary } from './scenario.ts';

/** Names of the handlers that inferlets call and that need a backend's results. */
export const HANDLERS = [
  'forward',
  'next-distribution',
  'log-probabilities',
  'entropy',
  'step',
  'step, allowed tokens',
  'forward-scores',
] as const;
export type HandlerName = (typeof HANDLERS)[number];

/** Norm of each handler's error: relative for states and attention, which have a scale, and absolute for log-probabilities. */
export const NORMS: Readonly<Record<HandlerName, 'relative L2' | 'max abs'>> = {
  forward: 'relative L2',
  'next-distribution': 'max abs',
  'log-probabilities': 'max abs',
  entropy: 'max abs',
  step: 'max abs',
  'step, allowed tokens': 'max abs',
  'forward-scores': 'relative L2',
};

/** Runs a scenario through every handler, for all inputs of its batch, and returns all numbers in a fixed order. */
export async function handlerValues(
  backend: Backend,
  scenario: Scenario,
  seed: number,
): Promise<Record<HandlerName, Float32Array>> {
  const { config } = backend;
  const random = new Random(seed);
  await take(backend, scenario.before);
  const { batch } = scenario;
  const rows = batch.map(({ positions }) => positions.length);
  const fullBatch = batch.map((sequence, i): SequenceInput => {
    const output = { ...wholeVocabulary(config, rows[i]), states: true };
    return { ...sequence, output, attention: true };
  });
  const fullOutputs = await backend.forward(fullBatch);
  const forward = await backend.forward(
    batch.map((sequence, i): SequenceInput => ({ ...sequence, output: { kind: 'states', rows: rows[i] } })),
  );
  const maskedOutputs = await backend.forward(
    fullBatch.map((sequence, i): SequenceInput => {
      const output = { ...wholeVocabulary(config, rows[i]), allowed: allowedMask(config, random, rows[i]) };
      return { ...sequence, output, attention: false };
    }),
  );
  const states = join(forward.map(values));
  const count = rows.reduce((sum, each) => sum + each, 0);
  const tokens = rows.flatMap((each) => Array.from({ length: each }, () => random.tokens(config, random.below(5))));
  const distribution = await backend.project(states, count, config.vocabularySize);
  const scores = await backend.score(states, count, tokens);
  return {
    forward: join([states, ...fullOutputs.map(statesOf)]),
    'next-distribution': values({ kind: 'top', ...distribution }),
    'log-probabilities': join(scores.logProbabilities),
    entropy: scores.entropies,
    step: join(fullOutputs.map(values)),
    'step, allowed tokens': join(maskedOutputs.map(values)),
    'forward-scores': join(fullOutputs.map(({ attention }) => attention ?? new Float32Array(0))),
  };
}

/** The error of a handler's numbers in its norm. The error is infinite unless masked-out tokens are -Infinity on both sides. */
export function handlerError(handler: HandlerName, actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY;
  let largestDifference = 0;
  let squares = 0;
  let magnitude = 0;
  for (let i = 0; i < expected.length; i++) {
    if (actual[i] === expected[i]) {
      if (Number.isFinite(expected[i])) magnitude += expected[i] ** 2;
      continue;
    }
    const difference = Math.abs(actual[i] - expected[i]);
    if (!Number.isFinite(difference)) return Number.POSITIVE_INFINITY;
    largestDifference = Math.max(largestDifference, difference);
    squares += difference ** 2;
    magnitude += expected[i] ** 2;
  }
  return NORMS[handler] === 'max abs' || largestDifference === 0 ? largestDifference : Math.sqrt(squares / magnitude);
}

/** A token mask for each row. It allows a random share of the vocabulary, from 2 % to all of it, and at least one token. */
export function allowedMask(config: ModelConfig, random: Random, rows: number): Uint32Array {
  const words = allowedWords(config);
  const mask = new Uint32Array(rows * words);
  for (let row = 0; row < rows; row++) {
    const share = [0.02, 0.5, 0.9, 1][random.below(4)];
    for (let token = 0; token < config.vocabularySize; token++) {
      if (random.next() < share) mask[row * words + (token >> 5)] |= 1 << (token & 31);
    }
    const forced = random.below(config.vocabularySize);
    mask[row * words + (forced >> 5)] |= 1 << (forced & 31);
  }
  return mask;
}

function statesOf(output: SequenceOutput): Float32Array {
  return (output.kind === 'none' ? undefined : output.states) ?? new Float32Array(0);
}

function join(parts: readonly Float32Array[]): Float32Array {
  const joined = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  return joined;
}
