import type { ModelConfig } from '#gpu-host/models/config.ts';
import { splitmix } from '#gpu-host/models/testing/random-model.ts';
import type { Backend, InputRows, SequenceInput, SequenceOutput, TopRequest } from '../backend.ts';

/** The random inputs of steps. They draw from splitmix32, as random weights do, because recorded figures depend on its numbers. */
export class Random {
  /** From 0 up to, not including, 1. */
  readonly next: () => number;

  constructor(seed: number) {
    this.next = splitmix(seed);
  }

  /** An integer from 0 up to, not including, `end`. */
  below(end: number): number {
    return Math.floor(this.next() * end);
  }

  tokens(config: ModelConfig, count: number): Uint32Array {
    return Uint32Array.from({ length: count }, () => this.below(config.vocabularySize));
  }

  floats(count: number): Float32Array {
    return Float32Array.from({ length: count }, () => 2 * this.next() - 1);
  }

  /** All integers below `count`, shuffled. */
  permutation(count: number): Uint32Array {
    const order = Uint32Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }
}

/** Integers from `start` up to, not including, `end`. */
export function range(start: number, end: number): Uint32Array {
  return Uint32Array.from({ length: end - start }, (_, i) => start + i);
}

/** A sequence with defaults: a causal mask, positions after the context, no writes, and all probabilities after the last input. */
export function sequence(
  config: ModelConfig,
  inputs: Uint32Array | Float32Array,
  rest: Partial<Omit<SequenceInput, 'inputs'>> = {},
): SequenceInput {
  const rows: InputRows =
    inputs instanceof Uint32Array ? { kind: 'tokens', tokens: inputs } : { kind: 'embeds', embeds: inputs };
  const count = inputs instanceof Uint32Array ? inputs.length : inputs.length / config.hiddenSize;
  const context = rest.context ?? new Uint32Array(0);
  return {
    inputs: rows,
    positions: range(context.length, context.length + count),
    context,
    mask: 'causal',
    writes: new Uint32Array(0),
    output: wholeVocabulary(config),
    ...rest,
  };
}

/** Every token's log-probability after the last `rows` inputs. */
export function wholeVocabulary(config: ModelConfig, rows = 1): TopRequest {
  return { kind: 'top', rows, topK: config.vocabularySize };
}

/** The numbers of an output in a fixed order: states unchanged, or log-probabilities by token, -Infinity for tokens without one. */
export function values(output: SequenceOutput): Float32Array {
  if (output.kind === 'none') return new Float32Array(0);
  if (output.kind === 'states') return output.states;
  const { topK, tokens, logProbabilities } = output;
  const byToken = new Float32Array(logProbabilities.length).fill(Number.NEGATIVE_INFINITY);
  for (let i = 0; i < tokens.length; i++) {
    if (logProbabilities[i] === Number.NEGATIVE_INFINITY) continue;
    byToken[Math.floor(i / topK) * topK + tokens[i]] = logProbabilities[i];
  }
  return byToken;
}

/** Runs one batch and returns each output's {@link values}. */
export async function run(backend: Backend, ...batch: readonly SequenceInput[]): Promise<Float32Array[]> {
  return (await backend.forward(batch)).map(values);
}

/** The largest difference over the largest magnitude of `expected`. */
export function relativeError(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY;
  let difference = 0;
  let magnitude = 0;
  for (let i = 0; i < expected.length; i++) {
    if (actual[i] === expected[i] && !Number.isFinite(expected[i])) continue;
    const each = Math.abs(actual[i] - expected[i]);
    difference = Number.isNaN(each) ? Number.POSITIVE_INFINITY : Math.max(difference, each);
    magnitude = Math.max(magnitude, Math.abs(expected[i]));
  }
  return difference === 0 ? 0 : difference / magnitude;
}

/** The root of the summed squared differences over the root of the summed squares of `expected`: the norm for quantised weights. */
export function rootMeanSquareError(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY;
  let difference = 0;
  let magnitude = 0;
  for (let i = 0; i < expected.length; i++) {
    difference += (actual[i] - expected[i]) ** 2;
    magnitude += expected[i] ** 2;
  }
  return Math.sqrt(difference / magnitude);
}
