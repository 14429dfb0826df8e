import type { HandlerError, Outcome } from '../protocol/errors.ts';

/** A call's error, in tests whose inferlets may end early. */
export class Ended extends Error {
  readonly error: HandlerError;

  constructor(error: HandlerError) {
    super(error.val);
    this.error = error;
  }
}

/** The value of an outcome. @throws Ended */
export function take<T>(outcome: Outcome<T>): T {
  if (outcome.tag === 'err') throw new Ended(outcome.val);
  return outcome.val;
}
