import type { Frame } from 'pie:inferlet/fused@0.1.0';
import { InferletError } from '../errors.ts';
import { checkCount } from '../option-checks.ts';
import type { Jump } from './decoders.ts';
import type { GenerateOptions } from './generation-options.ts';

export const NO_MORE_CANDIDATES =
  'With a speculator, a sampler sees only the most probable tokens. It cannot be combined with a bias above 0 or another rule that asks for certain tokens.';

/** Maximum number of stop strings of a piped text. */
const MAX_STOPS = 64;
/** The stop strings of a piped text may have 1,024 bytes in all. A UTF-16 unit takes at most three. */
const MAX_STOP_CHARACTERS = 1024 / 3;
/** A frame may have 8,192 bytes. */
const MAX_FRAME_CHARACTERS = 8192 / 3;

/** Throws when options of a generation exclude each other or have no meaning. */
export function checkOptions(options: GenerateOptions): void {
  const { maxTokens, decode, constraint, window, speculator, logProbabilities, jumpForward, healing } = options;
  if (speculator && (window || decode !== undefined)) {
    throw new InferletError(
      'invalid-argument',
      '`speculator` cannot be combined with `window` or `decode`: a speculator decodes in its own way.',
    );
  }
  if (window && decode !== undefined && decode !== 'step') {
    throw new InferletError(
      'invalid-argument',
      `With a window, tokens are decoded one by one: remove decode "${decode}".`,
    );
  }
  if (constraint && (decode === 'calls' || (decode === 'ahead' && !isConstrainedAhead(options)))) {
    const text =
      'With a constraint `decode` is "step", or "ahead" with a built-in sampler, jumps, and neither `until` nor log-probabilities.';
    throw new InferletError('invalid-argument', text);
  }
  if (healing && (constraint || window)) {
    throw new InferletError('invalid-argument', '`healing` cannot be combined with `constraint` or `window`.');
  }
  if (logProbabilities && speculator) {
    throw new InferletError('unsupported', '`logProbabilities` cannot be combined with `speculator`.');
  }
  if (jumpForward && (window || logProbabilities)) {
    const text =
      '`jumpForward` cannot be combined with `window`, which moves token by token, or with `logProbabilities`, which need sampled tokens.';
    throw new InferletError('invalid-argument', text);
  }
  if (window?.endless && maxTokens === undefined) {
    throw new InferletError('invalid-argument', 'With an endless window the text may never end: set maxTokens.');
  }
  if (maxTokens !== undefined) checkCount('maxTokens', maxTokens, 0);
}

/** True if a constraint's decoder decodes in runs. A run hands over several tokens at once and takes forced tokens without sampling. */
export function isConstrainedAhead(options: GenerateOptions): boolean {
  const { decode, sampler, speculator } = options;
  return decode === 'ahead' && sampler?.kind !== 'guest' && !speculator && jumpOf(options) === 'at-once';
}

/** The way in which a constraint's decoder takes forced tokens. A custom sampler, a window and log-probabilities need sampled tokens. */
export function jumpOf({ jumpForward, sampler, window, until, logProbabilities }: GenerateOptions): Jump {
  const jumps = jumpForward ?? (sampler?.kind !== 'guest' && !window && !logProbabilities);
  if (!jumps) return 'none';
  return until ? 'one-by-one' : 'at-once';
}

/** True if the platform takes a piped text with these stop strings, in messages of this frame. */
export function isPipeable(stopStrings: readonly string[], frame: Frame | null): boolean {
  if (frame && lengthOf(frame) > MAX_FRAME_CHARACTERS) return false;
  const characters = stopStrings.reduce((sum, stop) => sum + stop.length, 0);
  return stopStrings.length <= MAX_STOPS && characters <= MAX_STOP_CHARACTERS;
}

const lengthOf = ({ opening, before, after }: Frame): number => opening.length + before.length + after.length;
