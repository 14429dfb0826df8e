/** The check has used up its steps: the value is too large for its schema. */
export class StepsExhausted extends Error {
  override readonly name = 'StepsExhausted';

  constructor() {
    super('The check takes too many steps.');
  }
}

/** Maximum nesting of the schemas under check, and of two values under comparison: deeper ones would overflow the stack. */
export const MAX_DEPTH = 1000;

/** A value or an endless reference exceeds `MAX_DEPTH`. */
export class TooDeepError extends Error {
  override readonly name = 'TooDeepError';

  constructor() {
    super('The value is nested too deeply.');
  }
}

/**
 * Steps that one check may take. Every loop over a client's value, schema or text spends steps here, so a check ends after a bounded time
 * without a clock. A step takes 20 to 60 ns.
 */
export class StepBudget {
  #remainingSteps: number;

  constructor(steps: number) {
    this.#remainingSteps = steps;
  }

  /** @throws StepsExhausted */
  spend(steps: number): void {
    this.#remainingSteps -= steps;
    if (this.#remainingSteps < 0) throw new StepsExhausted();
  }
}
