/** The check has used up its steps: the value is too large for its schema. */
export class StepsExhausted extends Error {
  override readonly name = 'StepsExhausted';

  constructor() {
    super('The check takes too many steps.');
  }
}

/** Maximum nesting of the schemas under check, and of two values under comparison: deeper ones would overflow the stack. */
export const MAX_DEPTH = 1000;

/** Characters that are compared, counted or written in the time of one step. */
const CHARACTERS_PER_STEP = 8;
/** Members from which V8 keeps an object as a hash table. To list such an object's names, it sorts them. */
const MANY_NAMES = 256;
/** Steps charged for a name in a list of names, and the further ones in a list of many. */
const NAME_STEPS = 1;
const SORTED_NAME_STEPS = 8;

/** A value or an endless reference exceeds `MAX_DEPTH`. */
export class TooDeepError extends Error {
  override readonly name = 'TooDeepError';

  constructor() {
    super('The value is nested too deeply.');
  }
}

/**
 * Steps that one check may take. Every operation on a client's value, schema or text spends steps in proportion to the bytes, names or items that
 * it touches, so a check ends after a bounded time without a clock. A step takes 10 to 30 ns.
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

  /** Spends the steps of an operation that reads or writes each of some characters. @throws StepsExhausted */
  spendCharacters(count: number): void {
    this.spend(count / CHARACTERS_PER_STEP);
  }

  /** The names of an object's members. @throws StepsExhausted */
  namesOf(object: object): string[] {
    const names = Object.keys(object);
    this.spend(names.length * (names.length < MANY_NAMES ? NAME_STEPS : NAME_STEPS + SORTED_NAME_STEPS));
    return names;
  }
}
