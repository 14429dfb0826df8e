/** Runs synchronous work, and throws {@link TimeLimitError} instead of letting it run for ever. */
export type WithTimeLimit = <T>(work: () => T) => T;

/** Work took longer than it may. */
export class TimeLimitError extends Error {
  override readonly name = 'TimeLimitError';

  constructor() {
    super('It took too long.');
  }
}
