import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { Backend, SequenceOutput } from '../backend.ts';
import { take } from './mask-kinds.ts';
import { type Case, randomSteps } from './random-batch.ts';
import { relativeError, values } from './scenario.ts';

/** Takes the same random steps on both backends, and returns the largest error of any output by `norm`. */
export async function compare(
  model: LoadedModel,
  reference: Backend,
  other: Backend,
  batch: readonly Case[],
  norm = relativeError,
): Promise<number> {
  const steps = randomSteps(model.config, batch);
  const expected = await take(reference, steps);
  const actual = await take(other, steps);
  let error = 0;
  expected.forEach((each, i) => {
    for (const numbers of [values, statesOf, attentionOf]) {
      error = Math.max(error, norm(numbers(actual[i]), numbers(each)));
    }
  });
  return error;
}

const NOTHING = new Float32Array(0);

function statesOf(output: SequenceOutput): Float32Array {
  return (output.kind === 'top' ? output.states : undefined) ?? NOTHING;
}

function attentionOf(output: SequenceOutput): Float32Array {
  return output.attention ?? NOTHING;
}
