import { InferletError } from '../errors.ts';
import type { NodeValues } from './engine.ts';
import type { Graph } from './graph.ts';
import { optimise, PASSES, type Pass } from './passes.ts';
import { type EfficientTokens, Sizes } from './sizes.ts';

/** Options of a workflow or a program. */
export interface PlanOptions<I> {
  /**
   * Inputs for which plans (optimised graphs) are made when the component is built. The component contains them, because each instance starts
   * from the state in which the build left the module. A plan serves every input that equals the plan's input in the parts that the program read.
   * The values of arguments are not read. An instance also keeps plans that it makes itself, {@link MOST_PLANS} in all.
   *
   * With this option the graph must depend only on the input: a plan would keep the values of `Math.random` or a clock for ever.
   */
  readonly plans?: readonly Partial<I>[] | undefined;
}

/** A graph that was made from an input, and the parts of the input that the program read for it. */
export interface Made {
  readonly graph: Graph;
  readonly reads: InputReads;
}

interface Plan extends Made {
  readonly passes: readonly Pass[];
  readonly sizes: Sizes;
  readonly isOfBuild: boolean;
}

/** Most plans of one workflow. A run compares its input with the plans one by one, and each plan takes the memory of its graph. */
export const MOST_PLANS = 16;

/** Plans of a workflow for different inputs, passes and sizes. A new version of the function starts with the plans of its own build. */
export class Plans {
  readonly #plans: Plan[] = [];
  readonly #faults: string[] = [];

  /** Number of plans. */
  get count(): number {
    return this.#plans.length;
  }

  /** Reasons for which plans could not be made at the build. */
  get faults(): readonly string[] {
    return this.#faults;
  }

  /** Makes the plans of the build. A failure is only recorded in {@link faults}: the graph is then made at a run. */
  build<I>(samples: readonly Partial<I>[], make: (input: I) => Made): void {
    if (samples.length > MOST_PLANS)
      this.#faults.push(`${samples.length} plans are listed, but at most ${MOST_PLANS} are possible.`);
    for (const sample of samples.slice(0, MOST_PLANS)) {
      try {
        this.#add(make(sample as I), PASSES, new Sizes(), true);
      } catch (thrown) {
        this.#faults.push(InferletError.from(thrown).message);
      }
    }
  }

  /**
   * The optimised graph of a plan that serves the input and was made by these passes, if the sizes of `tokensOf` lead the passes to the same
   * choices. The sizes may differ: the build made its plans before any size was measured.
   */
  find(input: unknown, passes: readonly Pass[], tokensOf: EfficientTokens = () => undefined): Graph | undefined {
    const fits = ({ passes: own, reads, sizes }: Plan) =>
      isSameList(own, passes) && reads.fit(input) && sizes.hold(tokensOf);
    return this.#plans.find(fits)?.graph;
  }

  /** Optimises a graph, and keeps the plan. Beyond {@link MOST_PLANS}, it drops the oldest plan, and plans of the build last. */
  add(made: Made, passes: readonly Pass[], sizes: Sizes): Graph {
    return this.#add(made, passes, sizes, false);
  }

  #add({ graph, reads }: Made, passes: readonly Pass[], sizes: Sizes, isOfBuild: boolean): Graph {
    const optimised = optimise(graph, passes, sizes);
    if (this.#plans.length >= MOST_PLANS) {
      const oldest = this.#plans.findIndex((plan) => !plan.isOfBuild);
      this.#plans.splice(Math.max(0, oldest), 1);
    }
    this.#plans.push({ graph: optimised, reads, passes, sizes, isOfBuild });
    return optimised;
  }
}

type Reader = (input: unknown) => unknown;

/** Notes the members of its input that a program reads while it makes a graph, with their values. */
export class InputReads {
  readonly #reads = new Map<string, { readonly read: Reader; readonly was: unknown }>();
  #isOver = false;

  /** The input, whose members are noted when they are read. It is a copy: a plan outlasts the changes of the program and its caller. */
  watch<I>(input: I): I {
    if (!isPlain(input)) return this.#note('', whole, input) as I;
    const noteAll = () => this.#note('', whole, input);
    return new Proxy(copyOf(input), {
      get: (target, name) => {
        if (typeof name === 'string') this.#note(`.${name}`, memberOf(name), target[name]);
        else noteAll();
        return Reflect.get(target, name);
      },
      has(target, name) {
        noteAll();
        return Reflect.has(target, name);
      },
      getOwnPropertyDescriptor(target, name) {
        noteAll();
        return Reflect.getOwnPropertyDescriptor(target, name);
      },
      ownKeys(target) {
        noteAll();
        return Reflect.ownKeys(target);
      },
    });
  }

  /** Length of a list of the input; notes only the length as read. Throws `invalid-argument` when the input has no such list. */
  lengthOf(input: unknown, name: string): number {
    const length = lengthOf(name)(input);
    if (typeof length !== 'number') throw new InferletError('invalid-argument', `The input has no list "${name}".`);
    return this.#note(`#${name}`, lengthOf(name), length) as number;
  }

  /** Ends the recording, and makes later reads throw. The functions of a graph run for other inputs, too, so they must not read this input. */
  end(): this {
    this.#isOver = true;
    return this;
  }

  /** True when another input has the same values in the parts that were read. */
  fit(input: unknown): boolean {
    for (const { read, was } of this.#reads.values()) if (!isSame(read(input), was)) return false;
    return true;
  }

  #note(key: string, read: Reader, was: unknown): unknown {
    if (this.#isOver) {
      const text = `The input${key && ` "${key.slice(1)}"`} is read after the graph was made: read it before, or use an argument.`;
      throw new InferletError('invalid-argument', text);
    }
    // The program may have changed its own copy since the first read.
    if (!this.#reads.has(key)) this.#reads.set(key, { read, was: copyOf(was) });
    return was;
  }
}

/** The values of a graph's arguments in an input. */
export const givenBy = (input: unknown): NodeValues =>
  typeof input === 'object' && input !== null ? (input as NodeValues) : {};

const whole: Reader = (input) => input;
const memberOf =
  (name: string): Reader =>
  (input) =>
    (input as NodeValues | null | undefined)?.[name];
const lengthOf =
  (name: string): Reader =>
  (input) => {
    const list = memberOf(name)(input);
    return Array.isArray(list) ? list.length : undefined;
  };

const isSameList = (one: readonly unknown[], other: readonly unknown[]): boolean =>
  one.length === other.length && one.every((item, i) => item === other[i]);

const isPlain = (value: unknown): value is Record<string, unknown> => {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === Array.prototype || prototype === null;
};

/** Objects of an input at this depth are not copied, and are equal only to themselves. The limit keeps the recursion within the call stack. */
const MOST_DEPTH = 64;

/** A copy of a JSON value; other objects stay themselves. */
function copyOf<T>(value: T, depth = 0): T {
  if (!isPlain(value) || depth === MOST_DEPTH) return value;
  if (Array.isArray(value)) return value.map((item) => copyOf(item, depth + 1)) as unknown as T;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, copyOf(member, depth + 1)])) as T;
}

/** Equality of JSON values. Other objects, and objects at the depth `MOST_DEPTH`, equal only themselves. */
function isSame(one: unknown, other: unknown, depth = 0): boolean {
  if (Object.is(one, other)) return true;
  if (depth === MOST_DEPTH || !isPlain(one) || !isPlain(other) || Array.isArray(one) !== Array.isArray(other))
    return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && isSame(one[name], other[name], depth + 1))
  );
}
