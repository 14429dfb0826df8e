import type { Jump } from './decoders.ts';
import { InferletError } from './errors.ts';
import type { GenerateOptions } from './generation-options.ts';

export const NO_MORE_CANDIDATES =
  'With a speculator a sampler sees the most probable tokens only: a bias above 0, and whatever else asks for certain tokens, does not go with it.';

/** Throws when options of a generation exclude each other or have no meaning. */
export function checkOptions(options: GenerateOptions): void {
  const { maxTokens, decode, constraint, window, speculator, logProbabilities, jumpForward, healing } = options;
  if (speculator && (window || decode !== undefined)) {
    throw new InferletError(
      'invalid-argument',
      'A speculator has a way of decoding of its own: it goes with no window or `decode`.',
    );
  }
  if (window && decode !== undefined && decode !== 'step') {
    throw new InferletError('invalid-argument', `With a window tokens come one by one, not by "${decode}".`);
  }
  if (constraint && (decode === 'calls' || (decode === 'ahead' && !isConstrainedAhead(options)))) {
    const text =
      'With a constraint `decode` is "step", or "ahead" with a built-in sampler, jumps, and neither `until` nor log-probabilities.';
    throw new InferletError('invalid-argument', text);
  }
  if (healing && (constraint || window)) {
    throw new InferletError('invalid-argument', 'Healing a prompt goes with no constraint and no window.');
  }
  if (logProbabilities && speculator) {
    throw new InferletError('unsupported', 'Log-probabilities are not told with a speculator.');
  }
  if (jumpForward && (window || logProbabilities)) {
    const text =
      'A window moves token by token, and log-probabilities come with sampled tokens: neither goes with `jumpForward`.';
    throw new InferletError('invalid-argument', text);
  }
  if (window?.endless && maxTokens === undefined) {
    throw new InferletError('invalid-argument', 'A text that never leaves its window has no end: say maxTokens.');
  }
  if (maxTokens !== undefined && !(Number.isInteger(maxTokens) && maxTokens >= 0)) {
    throw new InferletError('invalid-argument', `maxTokens must be a whole number, 0 or more, not ${maxTokens}.`);
  }
}

/** True if a constraint's decoder decodes in runs: they hand over several tokens at once, and take forced tokens without sampling. */
export function isConstrainedAhead(options: GenerateOptions): boolean {
  const { decode, sampler, speculator } = options;
  return decode === 'ahead' && sampler?.kind !== 'guest' && !speculator && jumpOf(options) === 'at-once';
}

/** The way in which a constraint's decoder takes forced tokens. A custom sampler has to see every token,
 * a window every step, and log-probabilities come with sampled tokens. */
export function jumpOf({ jumpForward, sampler, window, until, logProbabilities }: GenerateOptions): Jump {
  const jumps = jumpForward ?? (sampler?.kind !== 'guest' && !window && !logProbabilities);
  if (!jumps) return 'none';
  return until ? 'one-by-one' : 'at-once';
}
