import { type AbortSignalLike, aborter, throwIfAborted } from '../abort.ts';
import type { SelectOptions } from '../context/context.ts';
import { InferletError } from '../errors.ts';
import {
  BodyRun,
  Builder,
  graphOutputsOf,
  inputOf,
  isVariable,
  outputOf,
  Prompt,
  prompt,
  Untraceable,
  Variable,
} from './builder.ts';
import { type Engine, inputsOf, inputValue, type NodeValues, runNode } from './engine.ts';
import { type ExecuteOptions, execute } from './execute.ts';
import {
  type CallContext,
  type DecodeOptions,
  type Graph,
  type Input,
  keyOf,
  type Node,
  type Ref,
  type Type,
  type Values,
} from './graph.ts';
import { optimise, PASSES, type Pass } from './passes.ts';
import { givenBy, InputReads, type Made, type PlanOptions, Plans } from './plan.ts';
import { askedOnce, Sizes } from './sizes.ts';
import { validate } from './validate.ts';

/** A value in the template of a state. */
export type StateValue = Variable | Prompt | string | number | Uint8Array;

/** A text that the model generates where a state's template uses it first; later templates use its value. */
export const gen = (options: DecodeOptions = {}): Variable => new Variable({ kind: 'gen', options });

/** Like {@link gen}, but the model chooses the most probable of several texts. */
export const choice = (choices: readonly string[], options: SelectOptions = {}): Variable =>
  new Variable({ kind: 'choice', choices, options });

/** A growing text of a program. */
export class State {
  readonly #run: BodyRun;
  readonly #builder: Builder;
  readonly #model: string | undefined;
  #context: Ref<'context'> | undefined;
  #pending: (Ref<'text'> | Prompt | string | number | Uint8Array)[] = [];
  /** True when another state has taken over the context. */
  #hasEnded = false;

  /** @internal */
  constructor(run: BodyRun, builder: Builder, model: string | undefined, context?: Ref<'context'>) {
    this.#run = run;
    this.#builder = builder;
    this.#model = model;
    this.#context = context;
  }

  /**
   * Appends a template: texts, values of variables, and texts that the model generates at their place.
   *
   * @example
   * const answer = gen({ maxTokens: 32, stop: '\n' });
   * state.add`Question: ${question}\nAnswer:${answer}\n`;
   */
  add(strings: TemplateStringsArray, ...values: readonly StateValue[]): this {
    this.#checkGoesOn();
    for (const [i, text] of strings.entries()) {
      this.#pending.push(text);
      const value = values[i];
      if (value === undefined) continue;
      if (!isVariable(value)) this.#pending.push(value);
      else if (value.recipe) this.#make(value);
      else this.#pending.push(outputOf(value, this.#run));
    }
    return this;
  }

  /** A copy of this state; the two continue separately. */
  fork(): State {
    const context = this.#flush();
    return new State(this.#run, this.#builder, this.#model, context && this.#builder.fork(context));
  }

  /** Appends the computed text of another state (see `Context.append`). The other state then ends. */
  append(other: State): this {
    const [own, added] = [this.#flush(), other.#flush()];
    if (added) this.#context = own ? this.#builder.join(own, [added]) : added;
    other.#hasEnded = other !== this;
    return this;
  }

  /** Continues with one of two branches, chosen by a value that may not exist yet. Only a branch itself can use the values that it generates. */
  when(
    value: Variable,
    test: (text: string) => boolean,
    then: (state: State) => void,
    otherwise: (state: State) => void = () => undefined,
  ): this {
    const before = this.#contextOrNew();
    const tested = outputOf(value, this.#run);
    const flag = this.#builder.call('test', { value: tested }, 'flag', ({ value: text }) => test(text));
    const branch = (body: (state: State) => void) => () => {
      const state = new State(this.#run, this.#builder, this.#model, this.#builder.fork(before));
      body(state);
      return state.#contextOrNew();
    };
    this.#context = this.#builder.condition(flag, branch(then), branch(otherwise));
    return this;
  }

  /** @internal Ends `states` and continues some of them in new states. `placesOf` makes the node that gives the indices. */
  static pick(states: readonly State[], count: number, placesOf: (builder: Builder) => Ref<'numbers'>): State[] {
    const [first] = states;
    if (!first) throw new InferletError('invalid-argument', 'There is no state to pick from.');
    const contexts = states.map((state) => state.#contextOrNew());
    const picked = first.#builder.pick(contexts, placesOf(first.#builder), count);
    for (const state of states) state.#hasEnded = true;
    return picked.map((context) => new State(first.#run, first.#builder, first.#model, context));
  }

  /** Runs `body` at most `most` times, until `done` returns true for the value of the variable that `body` returned. */
  loop(most: number, body: (state: State) => Variable, done: (text: string) => boolean): this {
    const { context } = this.#builder.loop({ context: this.#contextOrNew() }, most, (builder, { context: start }) => {
      const state = new State(this.#run, builder, this.#model, start);
      const value = outputOf(body(state), this.#run);
      const end = builder.call('done', { value }, 'flag', ({ value: text }) => done(text));
      return { context: state.#contextOrNew(), done: end };
    });
    this.#context = context;
    return this;
  }

  #make(variable: Variable): void {
    const context = this.#contextOrNew();
    const { recipe } = variable;
    const made =
      recipe?.kind === 'choice'
        ? this.#builder.select(context, recipe.choices, recipe.options)
        : this.#builder.decode(context, recipe?.options ?? {});
    variable.bind(made.text, this.#run);
    this.#context = made.context;
  }

  #checkGoesOn(): void {
    if (!this.#hasEnded) return;
    throw new InferletError(
      'invalid-argument',
      'This state has ended, since another state continues its text: use that one.',
    );
  }

  /** The context with all appended text; undefined while the state is empty. */
  #flush(): Ref<'context'> | undefined {
    this.#checkGoesOn();
    const parts = this.#pending.flatMap((value) => prompt`${value}`.parts);
    this.#pending = [];
    if (parts.length === 0) return this.#context;
    const continued = this.#context && { context: this.#context };
    // One template merges the known texts that follow each other.
    const whole = prompt`${new Prompt(parts)}`;
    this.#context = this.#builder.prefill(whole, { ...continued, model: this.#model });
    return this.#context;
  }

  #contextOrNew(): Ref<'context'> {
    const context = this.#flush() ?? this.#builder.prefill(new Prompt([]), { model: this.#model });
    this.#context = context;
    return context;
  }
}

/** The operations of a program: arguments, states, values that they generate, and calls. */
export class Session {
  readonly #run: BodyRun;
  readonly #builder: Builder;
  readonly #input: unknown;
  readonly #reads: InputReads;
  readonly #interpreter: Interpreter | undefined;
  readonly #arguments = new Map<string, Variable>();

  /** @internal */
  constructor(run: BodyRun, builder: Builder, input: unknown, reads: InputReads, interpreter?: Interpreter) {
    this.#run = run;
    this.#builder = builder;
    this.#input = input;
    this.#reads = reads;
    this.#interpreter = interpreter;
  }

  /** A text of the input. Like a generated value, it can only stand in templates, so the program is the same for every text. */
  argument(name: string): Variable {
    return this.#argument(name);
  }

  /** The texts of a list of the input, each as {@link argument}. The program may depend on their number. */
  list(name: string): readonly Variable[] {
    const length = this.#reads.lengthOf(this.#input, name);
    return Array.from({ length }, (_, index) => this.#argument(name, index));
  }

  /** An empty text for a model, the function's first by default. */
  state({ model }: { readonly model?: string | undefined } = {}): State {
    return new State(this.#run, this.#builder, model);
  }

  /** Runs a function on values that may not exist yet; side effects of a program belong here. */
  call<T extends 'text' | 'texts' | 'json'>(
    name: string,
    inputs: readonly Variable[],
    type: T,
    call: (inputs: readonly string[], context: CallContext) => Values[T] | Promise<Values[T]>,
  ): Variable {
    const values = inputs.map((input) => outputOf(input, this.#run));
    const made = this.#builder.call(name, { values }, type as Type, (given, context) =>
      call((given as { values: string[] }).values, context),
    );
    return new Variable(undefined, made as Ref<'text'>, this.#run);
  }

  /**
   * Continues with `count` of several states, and ends the others. `choose` gets the values once they exist, and returns indices of `states`: the
   * states at the first `count` indices are returned, in this order.
   *
   * @example
   * const [best] = session.pick('best', answers, 1, scores, (texts) => [indexOfMax(texts.map(Number))]);
   */
  pick(
    name: string,
    states: readonly State[],
    count: number,
    values: readonly Variable[],
    choose: (values: readonly string[], context: CallContext) => readonly number[] | Promise<readonly number[]>,
  ): State[] {
    const inputs = { values: values.map((value) => outputOf(value, this.#run)) };
    return State.pick(states, count, (builder) =>
      builder.call(name, inputs, 'numbers', (given, context) =>
        choose((given as unknown as { values: string[] }).values, context),
      ),
    );
  }

  /** Waits for a value and returns it. A traced program knows no values, so a program with this call is interpreted. */
  async read(variable: Variable): Promise<string> {
    if (!this.#interpreter) throw this.#run.look('reads a value before the program is whole');
    const value = (await this.#interpreter.valueOf(outputOf(variable, this.#run))) as string;
    variable.know(value);
    return value;
  }

  #argument(name: string, index?: number): Variable {
    const key = index === undefined ? name : `${name}[${index}]`;
    const existing = this.#arguments.get(key);
    if (existing) return existing;
    const variable = new Variable(undefined, this.#builder.argument(name, 'text', index), this.#run);
    this.#arguments.set(key, variable);
    return variable;
  }
}

export interface ProgramOptions extends RunOptions {
  /** Interpret the program without tracing it. */
  readonly interpret?: boolean;
}

export type ProgramBody<I> = (
  session: Session,
  input: I,
) => Readonly<Record<string, unknown>> | Promise<Readonly<Record<string, unknown>>>;

export interface Program<I> extends Workflow<I> {
  run(input: I, options?: ProgramOptions): Promise<Results>;
}

/** A program whose nodes run on an engine; see `program` of the index. `tell` gets the reason for which a program is interpreted. */
export function programOn<I>(
  engine: Engine,
  tell: (text: string) => void,
  name: string,
  body: ProgramBody<I>,
  options: PlanOptions<I> = {},
): Program<I> {
  const plans = options.plans && new Plans();
  /** Runs the body on opaque values. Returns a promise only if the body does. */
  const trace = (input: I): Made | Promise<Made> => {
    const [run, builder, reads] = [new BodyRun(), new Builder(name), new InputReads()];
    const made = (results: Readonly<Record<string, unknown>>): Made => {
      if (run.looked) throw run.looked;
      const graph = builder.graph(graphOutputsOf(results, run));
      validate(graph);
      return { graph, reads: reads.end() };
    };
    const failed = (thrown: unknown): never => {
      throw run.looked ?? thrown;
    };
    let results: ReturnType<ProgramBody<I>>;
    try {
      results = body(new Session(run, builder, input, reads), plans ? reads.watch(input) : input);
    } catch (thrown) {
      return failed(thrown);
    }
    return results instanceof Promise ? results.then(made, failed) : made(results);
  };
  const interpret = async (input: I, signal: RunOptions['signal']): Promise<Results> => {
    using abort = aborter(signal);
    const interpreter = new Interpreter(engine, abort.signal, givenBy(input));
    const run = new BodyRun();
    const builder = new Builder(name, { onNode: (node) => interpreter.add(node) });
    try {
      const results = await body(new Session(run, builder, input, new InputReads(), interpreter), input);
      return await interpreter.results(graphOutputsOf(results, run));
    } finally {
      abort.abort(new InferletError('cancelled', 'The program has ended.'));
      await interpreter.release();
    }
  };
  plans?.build(options.plans ?? [], (input) => atOnce(trace(input)));
  return {
    name,
    isProgram: true,
    plans,
    graph: async (input) => (await trace(input)).graph,
    async run(input, { interpret: isInterpreted, passes = PASSES, ...rest } = {}) {
      if (isInterpreted) return interpret(input, rest.signal);
      const tokensOf = askedOnce((of) => engine.efficientTokens(of));
      let graph = plans?.find(input, passes, tokensOf);
      if (!graph) {
        let traced: Made;
        try {
          traced = await trace(input);
        } catch (thrown) {
          if (!(thrown instanceof Untraceable)) throw thrown;
          tell(`The program "${name}" is interpreted: ${thrown.message}`);
          return interpret(input, rest.signal);
        }
        graph = planned(traced, passes, new Sizes(tokensOf), plans);
      }
      return execute(graph, { ...rest, engine, given: givenBy(input) });
    },
  };
}

/** The graph of a plan of the build. Throws for a promise: the module makes these plans while it is evaluated, and cannot wait then. */
function atOnce(made: Made | Promise<Made>): Made {
  if (!(made instanceof Promise)) return made;
  made.catch(() => undefined);
  throw new InferletError(
    'unsupported',
    'The program returns a promise: only a program without "async" has plans of the build.',
  );
}

/** Options of a run. */
export interface RunOptions extends Pick<ExecuteOptions, 'concurrency' | 'onNode'> {
  readonly signal?: AbortSignalLike | undefined;
  /** The passes to apply, in order: {@link PASSES} by default. Without passes, the components run in their order. */
  readonly passes?: readonly Pass[] | undefined;
}

/** The results of `build`, with values in place of refs; known values stay as they are. */
export type Results = NodeValues;

/** A workflow or a program: makes a graph from an input, and runs it. */
export interface Workflow<I> {
  readonly name: string;
  /** True for a program, which is traced. */
  readonly isProgram: boolean;
  /** Plans that are kept; undefined without the option `plans`. */
  readonly plans: Pick<Plans, 'count' | 'faults' | 'find'> | undefined;
  /** The graph for an input, checked, before the passes. */
  graph(input: I): Promise<Graph>;
  run(input: I, options?: RunOptions): Promise<Results>;
}

/** A workflow whose nodes run on an engine; see `workflow` of the index. */
export function workflowOn<I>(
  engine: Engine,
  name: string,
  build: (builder: Builder, input: I) => Readonly<Record<string, unknown>>,
  options: PlanOptions<I> = {},
): Workflow<I> {
  const plans = options.plans && new Plans();
  const make = (input: I): Made => {
    const reads = new InputReads();
    const builder = new Builder(name);
    const graph = builder.graph(inputsFor(build(builder, plans ? reads.watch(input) : input)));
    validate(graph);
    return { graph, reads: reads.end() };
  };
  plans?.build(options.plans ?? [], make);
  return {
    name,
    isProgram: false,
    plans,
    graph: async (input) => make(input).graph,
    async run(input, { passes = PASSES, ...rest } = {}) {
      const tokensOf = askedOnce((of) => engine.efficientTokens(of));
      const graph = plans?.find(input, passes, tokensOf) ?? planned(make(input), passes, new Sizes(tokensOf), plans);
      return execute(graph, { ...rest, engine, given: givenBy(input) });
    },
  };
}

/** Applies the passes to a graph, and keeps the result as a plan if `plans` is given. */
const planned = (made: Made, passes: readonly Pass[], sizes: Sizes, plans: Plans | undefined): Graph =>
  plans ? plans.add(made, passes, sizes) : optimise(made.graph, passes, sizes);

function inputsFor(results: Readonly<Record<string, unknown>>): Record<string, Input> {
  return Object.fromEntries(Object.entries(results).map(([name, value]) => [name, inputOf(value)]));
}

/** Runs nodes one after another as a program makes them, so that the program can look at their values. */
class Interpreter {
  readonly #engine: Engine;
  readonly #signal: AbortSignalLike;
  readonly #given: NodeValues;
  readonly #values = new Map<string, unknown>();
  readonly #contexts: object[] = [];
  #last: Promise<void> = Promise.resolve();

  /** @param given values of the program's arguments */
  constructor(engine: Engine, signal: AbortSignalLike, given: NodeValues) {
    this.#engine = engine;
    this.#signal = signal;
    this.#given = given;
  }

  add(node: Node): void {
    this.#last = this.#last.then(() => this.#run(node));
    // `valueOf` and `results` report the failure.
    this.#last.catch(() => undefined);
  }

  /** The value of an output, once its node has run. */
  async valueOf(ref: Ref): Promise<unknown> {
    await this.#last;
    return this.#valueOf(ref);
  }

  /** The values of the inputs, once all nodes have run. */
  async results(outputs: Readonly<Record<string, Input>>): Promise<NodeValues> {
    await this.#last;
    const results: Record<string, unknown> = {};
    for (const [name, input] of Object.entries(outputs)) results[name] = this.#read(input);
    return results;
  }

  /** Releases all contexts, once the last node has ended. */
  async release(): Promise<void> {
    await this.#last.catch(() => undefined);
    for (const context of this.#contexts) this.#engine.release(context);
  }

  async #run(node: Node): Promise<void> {
    throwIfAborted(this.#signal);
    if (node.when.some(({ test, is }) => this.#values.get(keyOf(test)) !== is)) return;
    const began = Date.now();
    let failed = true;
    try {
      await this.#operate(node);
      failed = false;
    } finally {
      this.#engine.report(node, began, failed);
    }
  }

  async #operate(node: Node): Promise<void> {
    const { inputs } = inputsOf(node, (ref) => this.#values.get(keyOf(ref)));
    const values: Record<string, unknown> = {};
    for (const [name, input] of Object.entries(inputs)) values[name] = this.#read(input);
    // Each state of a program owns its context, and the state's nodes may change it. Only a fork must not change its input, so it gets a copy.
    if (node.operation.kind === 'fork') {
      values.context = this.#keep(await this.#engine.fork(values.context as object, this.#signal));
    }
    const outputs = await runNode(node, values, {
      engine: this.#engine,
      signal: this.#signal,
      given: this.#given,
      depth: undefined,
      emit: () => undefined,
      runGraph: (graph, given) => execute(graph, { engine: this.#engine, given, signal: this.#signal }),
    });
    for (const [port, type] of Object.entries(node.outputs)) {
      const value = outputs[port];
      if (type === 'context') this.#keep(value as object);
      this.#values.set(keyOf({ node: node.id, port }), value);
    }
  }

  #keep(context: object): object {
    if (!this.#contexts.includes(context)) this.#contexts.push(context);
    return context;
  }

  #read(input: Input): unknown {
    return inputValue(input, (ref) => this.#valueOf(ref));
  }

  /** Throws `invalid-argument` for a value of a branch that was not taken, or of a loop's round. */
  #valueOf(ref: Ref): unknown {
    const key = keyOf(ref);
    if (this.#values.has(key)) return this.#values.get(key);
    throw new InferletError(
      'invalid-argument',
      `"${key}" has no value here: only the branch or the loop that generates a value can use it.`,
    );
  }
}
