/**
 * Thrown for a source that cannot be matched, and for a call that a matcher refuses. `message` says what is wrong,
 * where, and what to do about it.
 */
export class GrammarError extends Error {
  override readonly name = 'GrammarError';
  readonly tag: 'invalid-argument' | 'limit-exceeded';

  constructor(tag: 'invalid-argument' | 'limit-exceeded', message: string) {
    super(message);
    this.tag = tag;
  }
}

export function invalid(message: string): GrammarError {
  return new GrammarError('invalid-argument', message);
}

export function tooLarge(message: string): GrammarError {
  return new GrammarError('limit-exceeded', message);
}

/** A piece of a source for a message, short and in quotes. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
}
