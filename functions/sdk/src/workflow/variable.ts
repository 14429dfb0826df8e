import type { SelectOptions } from '../context/select.ts';
import { InferletError } from '../errors.ts';
import { inputOf } from './builder.ts';
import { type DecodeOptions, type Input, isRef, type Ref } from './graph.ts';

/** Thrown when a program cannot be traced; the message has the reason and the place in the program. */
export class Untraceable extends InferletError {
  /** @param what the rest of a sentence that begins with "The program" */
  constructor(what: string) {
    super('unsupported', `The program ${what}${placeOf(new Error())}.`);
  }
}

/** How a variable gets its value. */
export type Recipe =
  | { readonly kind: 'gen'; readonly options: DecodeOptions }
  | { readonly kind: 'choice'; readonly choices: readonly string[]; readonly options: SelectOptions };

/** One run of a program's body. A value belongs to the run that made it. */
export class BodyRun {
  /** The first use of a value that may not exist yet. Catching the error does not undo the use, because the program has taken another path since. */
  looked: Untraceable | undefined;

  /** Notes a use of a value that may not exist yet, and returns its error. */
  look(what: string): Untraceable {
    const error = new Untraceable(what);
    this.looked ??= error;
    return error;
  }
}

/** A value of a program that may not exist yet. It can stand in a state's template; anything else needs `await session.read(variable)`. */
export class Variable {
  #recipe: Recipe | undefined;
  #output: Ref<'text'> | undefined;
  #known: string | undefined;
  #run: BodyRun | undefined;

  /** @internal */
  constructor(recipe?: Recipe, output?: Ref<'text'>, run?: BodyRun) {
    this.#recipe = recipe;
    this.#output = output;
    this.#run = run;
  }

  /** @internal Set until the value's node is made. */
  get recipe(): Recipe | undefined {
    return this.#recipe;
  }

  /** @internal */
  bind(output: Ref<'text'>, run: BodyRun): void {
    this.#output = output;
    this.#run = run;
    this.#recipe = undefined;
  }

  /** @internal */
  know(value: string): void {
    this.#known = value;
  }

  /** @internal */
  get output(): Ref<'text'> | undefined {
    return this.#output;
  }

  /** @internal */
  get run(): BodyRun | undefined {
    return this.#run;
  }

  toString(): string {
    if (this.#known !== undefined) return this.#known;
    throw (this.#run ?? new BodyRun()).look(
      'turns a value that may not exist yet into a string, outside of a template: use await session.read(variable), or when() and loop(),',
    );
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.toPrimitive](): string {
    return this.toString();
  }
}

export const isVariable = (value: unknown): value is Variable => value instanceof Variable;

/** Places of conditions that depend on a value that may not exist yet, with advice on what to use instead. */
export const undecided = new Map<string, string>();

/**
 * Returns a value that a condition at `place` uses. An object cannot notice that JavaScript tests or compares it, so the build puts this
 * function around conditions when it traces a program. Throws `invalid-argument` for a value that may not exist yet.
 */
export function tested<T>(value: T, place: string): T {
  const advice = adviceFor(value);
  if (advice === undefined) return value;
  undecided.set(place, advice);
  throw new InferletError(
    'invalid-argument',
    `A condition at ${place} looks at a value that may not exist yet. ${advice}`,
  );
}

/** Advice for a program that tests a value that may not exist yet; undefined for a value that can be tested. */
function adviceFor(value: unknown): string | undefined {
  const ask = 'compare with undefined to ask whether there is a value.';
  if (isVariable(value))
    return `Decide by state.when(…) or state.loop(…), or look at it with await session.read(…); ${ask}`;
  if (isRef(value)) return `Decide by condition(…) or loop(…) of the builder; ${ask}`;
  return undefined;
}

/**
 * The result of a comparison; `place` and `otherPlace` are the places of its two sides for {@link tested}. A program may compare two outputs of
 * nodes, and a value with itself. It may not compare two different variables, because both may get the same text.
 */
export function compared(one: unknown, other: unknown, operator: string, place: string, otherPlace: string): boolean {
  if (one !== other && !(isRef(one) && isRef(other))) {
    tested(one, place);
    tested(other, otherPlace);
  }
  switch (operator) {
    case '===':
      return one === other;
    case '!==':
      return one !== other;
    case '==':
      // biome-ignore lint/suspicious/noDoubleEquals: the comparison of the program
      return one == other;
    default:
      // biome-ignore lint/suspicious/noDoubleEquals: the comparison of the program
      return one != other;
  }
}

/** The node's output that gives a variable its value in a run. */
export function outputOf(variable: Variable, run: BodyRun): Ref<'text'> {
  if (variable.output && variable.run === run) return variable.output;
  if (variable.output) {
    const text = `A value of another run of a program is used${placeOf(new Error())}: make each value within the program.`;
    throw new InferletError('invalid-argument', text);
  }
  throw new InferletError('invalid-argument', `A value is used${placeOf(new Error())} before a template holds it.`);
}

/** The results of a program as the `outputs` of its graph, each an {@link Input}. */
export function graphOutputsOf(results: Readonly<Record<string, unknown>>, run: BodyRun): Record<string, Input> {
  const plain = (value: unknown): unknown => {
    if (isVariable(value)) return outputOf(value, run);
    return Array.isArray(value) ? value.map(plain) : value;
  };
  return Object.fromEntries(Object.entries(results).map(([name, value]) => [name, inputOf(plain(value))]));
}

/** Names of functions of this library, and of built-in functions that call them. A stack frame with such a name is skipped. */
const LIBRARY_FRAME =
  /\b(Untraceable|Variable|look|toString|toJSON|toPrimitive|Symbol\.toPrimitive|read|outputOf|placeOf|graphOutputsOf|plain|map|String|add|call|when|loop|stringify|join|concat)\b/;

/** ` at FUNCTION (FILE:LINE:COLUMN)`, of the first frame of a stack that is not this library's. */
function placeOf({ stack = '' }: Error): string {
  const frames = stack.split('\n').filter((line) => /:\d+(:\d+)?\)?$/.test(line.trim()));
  const frame = frames.find((line) => !LIBRARY_FRAME.test(line.replace(/\(.*$/, ''))) ?? frames.at(-1);
  return frame ? ` ${frame.trim().replace(/^at <anonymous> \((.*)\)$/, 'at $1')}` : '';
}
