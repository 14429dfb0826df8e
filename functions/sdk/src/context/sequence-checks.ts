import { ContextOverflowError, InferletError } from '../errors.ts';
import { type ModelInfo, specialTokens } from './models.ts';
import type { Sequence } from './sequence.ts';

/** Throws `invalid-argument` when a model does not have all of these tokens. */
export function checkTokens({ name, vocabularySize }: ModelInfo, tokens: ArrayLike<number>): void {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i];
    if (token === undefined || !Number.isInteger(token) || token < 0 || token >= vocabularySize) {
      throw new InferletError(
        'invalid-argument',
        `Token id ${token} (at index ${i}) is outside the vocabulary of ${name}, which has ids 0 to ${vocabularySize - 1}.`,
      );
    }
  }
}

/** Throws `context-overflow` when `count` more tokens do not fit after `length` tokens. */
export function checkRoom({ name, contextLength }: ModelInfo, length: number, count: number): void {
  const total = length + count;
  if (total <= contextLength) return;
  const onTop = length > 0 ? ` on top of the ${length} already there` : '';
  throw new ContextOverflowError(
    `The prompt has ${count} tokens${onTop}, but ${name} sees at most ${contextLength} at once. ` +
      `Leave out at least ${total - contextLength}.`,
    total,
    contextLength,
  );
}

/** The tokens that have an id, for a detokenizer: the parts of an image have none. */
export const withIds = (tokens: readonly number[]): number[] => tokens.filter((token) => token >= 0);

/**
 * Gives an empty sequence the model's begin-of-text token, because the first prediction needs a token. Throws when the model has none: no other
 * token, such as one that ends a text, stands in for it, because vLLM and llama.cpp refuse an empty prompt for such a model, too.
 */
export function beginText(sequence: Sequence): void {
  if (sequence.length > 0) return;
  const { name } = sequence.model;
  const { bos } = specialTokens(name);
  if (bos === null) throw nothingToBegin('The context', name);
  sequence.append([bos]);
}

/** The error for an empty text that a model without a begin-of-text token cannot continue. `what` is the text, such as "The context". */
export function nothingToBegin(what: string, model: string): InferletError {
  const text = `${what} is empty, and ${model} has no token that begins a text: give it a text of at least one character.`;
  return new InferletError('invalid-argument', text);
}

export const UNKNOWN_BEGINNING =
  'This context was opened without its tokens, so its beginning cannot change: open it with its tokens.';
export const NOTHING_TO_JOIN =
  'A context that was opened without its tokens, or that dropped some in a window, cannot be appended: it lacks these tokens.';
export const NOTHING_PENDING =
  'The context was opened, or got an image, and no text since then: fill in some text first.';
