import type { SelectOptions } from '../context/context.ts';
import { InferletError } from '../errors.ts';
import {
  type CallContext,
  type DecodeOptions,
  type Elementwise,
  type Graph,
  type Guard,
  holdsRef,
  type Input,
  type Items,
  isRef,
  keyOf,
  type Node,
  newId,
  type Operation,
  outputRef,
  type Ref,
  type Type,
  type Values,
} from './graph.ts';

/** A value that a node may read: another node's output, a known value, or a list of outputs. */
export type Given<T extends Type> = Ref<T> | Values[T] | readonly (Ref | ElementOf<Values[T]>)[];

type ElementOf<List> = List extends readonly (infer Element)[] ? Element : never;

type PromptPart = { readonly from: Ref } | { readonly value: string | Uint8Array };

/** The parts of a prompt: known texts, and texts and images that nodes give. */
export class Prompt {
  readonly parts: readonly PromptPart[];

  constructor(parts: readonly PromptPart[]) {
    this.parts = parts;
  }
}

/** A value in the template of a prompt. */
export type PromptValue = Ref<'text'> | Ref<'image'> | Ref<'number'> | Prompt | string | number | Uint8Array;

/**
 * A prompt with the values of nodes in it. The model's tokenizer reads each value and each text between two values separately, so that the model
 * can compute a part of the prompt before the next part exists.
 *
 * @example
 * const { text } = g.decode(g.prefill(prompt`Context: ${passage}\nQuestion: ${question}\nAnswer:`));
 */
export function prompt(strings: TemplateStringsArray, ...values: readonly PromptValue[]): Prompt {
  const parts: PromptPart[] = [];
  strings.forEach((text, i) => {
    add(parts, text);
    if (i < values.length) add(parts, values[i] as PromptValue);
  });
  return new Prompt(parts);
}

function add(parts: PromptPart[], value: PromptValue): void {
  const last = parts.at(-1);
  if (value instanceof Prompt) {
    for (const part of value.parts) add(parts, 'from' in part ? (part.from as Ref<'text'>) : part.value);
  } else if (isRef(value)) parts.push({ from: value });
  else if (value instanceof Uint8Array) parts.push({ value });
  else if (value === '') return;
  else if (last && 'value' in last && typeof last.value === 'string') {
    parts[parts.length - 1] = { value: `${last.value}${value}` };
  } else parts.push({ value: String(value) });
}

/** Options of any node. */
export interface NodeOptions {
  /** Number of further attempts after a failure that another attempt may avoid; 0 by default. */
  readonly retries?: number;
}

/** Options of a node that runs a function. */
export interface CallOptions extends NodeOptions {
  readonly kind?: Extract<Operation, { readonly call: unknown }>['kind'];
  /** The list input whose elements the function treats one by one, and the most elements per call. The output is then a list, too. */
  readonly each?: Required<Elementwise>;
}

export interface ModelOptions extends NodeOptions {
  readonly model?: string | undefined;
}

/** Inputs of a call by name: refs or known values. */
type Inputs = Readonly<Record<string, unknown>>;
/** The values that the function gets for these inputs. */
type InputValues<I extends Inputs> = { readonly [K in keyof I]: ValueOf<I[K]> };
type ValueOf<I> = I extends Ref<infer T> ? Values[T] : I extends readonly (infer E)[] ? readonly ValueOf<E>[] : I;

/** Makes a graph: each method adds a node and returns its outputs. */
export class Builder {
  readonly #name: string;
  readonly #nodes: Node[] = [];
  readonly #components = new Set<string>();
  /** Components for which the next component waits. A component that waits for all of these replaces them in the list. */
  #recent: string[] = [];
  /** Components for which the next `ordered` component waits. Only an `ordered` component that waits for all of these replaces them. */
  #recentOrdered: string[] = [];
  readonly #counts = new Map<string, number>();
  #loops = 0;
  readonly #ids = new Set<string>();
  readonly #outer: Builder | undefined;
  /** Outputs of the outer graph that this graph reads, by key. Each becomes an argument of this graph. */
  readonly #captured = new Map<string, { readonly outer: Ref; readonly inner: Ref }>();
  #module: string;
  #after: readonly string[] = [];
  #ordered = false;
  /** True when the component has a node that always runs after earlier components. Arguments do not wait; nodes of branches may be skipped. */
  #waits = false;
  #guards: readonly Guard[] = [];
  readonly #onNode: ((node: Node) => void) | undefined;

  /** @param options.onNode is called with each node when it is made */
  constructor(name: string, options: { readonly outer?: Builder; readonly onNode?: (node: Node) => void } = {}) {
    this.#name = name;
    this.#module = name;
    this.#outer = options.outer;
    this.#onNode = options.onNode;
  }

  /**
   * A step of the program. Without passes, its nodes start when the nodes of the earlier components have ended, as in a program written step by
   * step. With `ordered`, passes keep this order, for the sake of side effects.
   */
  component<R>(name: string, make: () => R, { ordered = false }: { readonly ordered?: boolean } = {}): R {
    if (this.#module !== this.#name) {
      const text = `The component "${name}" begins inside of "${this.#module}": components cannot be nested.`;
      throw new InferletError('invalid-argument', text);
    }
    if (name === this.#name || this.#components.has(name)) {
      throw new InferletError('invalid-argument', `The component "${name}" already exists: give each its own name.`);
    }
    this.#after = [...(ordered ? this.#recentOrdered : this.#recent)];
    this.#components.add(name);
    this.#module = name;
    this.#ordered = ordered;
    this.#waits = false;
    try {
      return make();
    } finally {
      if (this.#waits) this.#recent = [];
      if (this.#waits && ordered) this.#recentOrdered = [];
      this.#recent.push(name);
      this.#recentOrdered.push(name);
      this.#module = this.#name;
      this.#after = [];
      this.#ordered = false;
    }
  }

  /** A member of a run's input, or one element of that member. The graph is the same for every value. */
  argument<T extends Type>(name: string, type: T, index?: number): Ref<T> {
    const [element, shown] = index === undefined ? [{}, name] : [{ index }, `${name}[${index}]`];
    const id = this.#add({ kind: 'argument', name, ...element }, {}, { value: type }, {}, shown);
    return outputRef(id, 'value', type);
  }

  /** Appends a prompt to a context, or to a new one. */
  prefill(
    text: Prompt | PromptValue,
    options: ModelOptions & { readonly context?: Ref<'context'> } = {},
  ): Ref<'context'> {
    const { context, model, retries } = options;
    const parts = text instanceof Prompt ? text.parts : prompt`${text}`.parts;
    const inputs = { ...(context && { context: { from: context } }), parts: { list: parts } };
    const id = this.#add({ kind: 'prefilling', model }, inputs, { context: 'context' }, { retries });
    return outputRef(id, 'context', 'context');
  }

  /** Opens a context that `Context.save` stored under a name; with its `tokens`, it can be inspected and cut. */
  cached(name: string, options: ModelOptions & { readonly tokens?: readonly number[] } = {}): Ref<'context'> {
    const { model, tokens, retries } = options;
    const id = this.#add({ kind: 'cached-context', name, tokens, model }, {}, { context: 'context' }, { retries });
    return outputRef(id, 'context', 'context');
  }

  /** Generates a text; returns it, and the context that continues after it. */
  decode(
    context: Ref<'context'>,
    options: DecodeOptions & NodeOptions & { readonly pipe?: boolean } = {},
  ): { readonly text: Ref<'text'>; readonly context: Ref<'context'> } {
    const { retries, pipe, ...decoding } = options;
    const outputs = { text: 'text', context: 'context' } as const;
    const inputs = { context: { from: context } };
    const node = this.#add({ kind: 'decoding', options: decoding, pipe }, inputs, outputs, { retries });
    return { text: outputRef(node, 'text', 'text'), context: outputRef(node, 'context', 'context') };
  }

  /** A prompt and the text that follows it. */
  generate(
    text: Prompt | PromptValue,
    options: DecodeOptions & ModelOptions & { readonly pipe?: boolean } = {},
  ): Ref<'text'> {
    const { model, ...decoding } = options;
    return this.decode(this.prefill(text, { model }), decoding).text;
  }

  /** Generates a text and takes its first sentences or lines, trimmed; if the text has fewer, the last outputs are empty. */
  items(context: Ref<'context'>, items: Items, options: DecodeOptions & NodeOptions = {}): Ref<'text'>[] {
    const { retries, ...decoding } = options;
    if (!(Number.isInteger(items.count) && items.count >= 1)) {
      throw new InferletError('invalid-argument', `count must be a whole number, 1 or more, not ${items.count}.`);
    }
    const ports = Array.from({ length: items.count }, (_, i) => `item${i}`);
    const outputs = Object.fromEntries(ports.map((port) => [port, 'text' as const]));
    const inputs = { context: { from: context } };
    const node = this.#add({ kind: 'decoding', options: decoding, items }, inputs, outputs, { retries });
    return ports.map((port) => outputRef(node, port, 'text'));
  }

  /** The most probable of several texts, and the context that continues after it. */
  select(
    context: Ref<'context'>,
    choices: readonly string[],
    options: SelectOptions & NodeOptions = {},
  ): { readonly text: Ref<'text'>; readonly context: Ref<'context'> } {
    const { retries, ...how } = options;
    const inputs = { context: { from: context } };
    const outputs = { text: 'text', context: 'context' } as const;
    const node = this.#add({ kind: 'select', choices, options: how }, inputs, outputs, { retries });
    return { text: outputRef(node, 'text', 'text'), context: outputRef(node, 'context', 'context') };
  }

  /** A copy of a context that continues separately. A context that several nodes read is forked in any case. */
  fork(context: Ref<'context'>): Ref<'context'> {
    const id = this.#add({ kind: 'fork' }, { context: { from: context } }, { context: 'context' });
    return outputRef(id, 'context', 'context');
  }

  /** Appends what was computed of other contexts to a context (see `Context.append`, with its approximation). */
  join(context: Ref<'context'>, others: readonly Ref<'context'>[]): Ref<'context'> {
    const inputs = { context: { from: context }, others: { list: others.map((from) => ({ from })) } };
    const id = this.#add({ kind: 'join' }, inputs, { context: 'context' });
    return outputRef(id, 'context', 'context');
  }

  /** Continues with the contexts at the first `count` indexes in `places`, in that order, and ends the others. A context picked twice is forked. */
  pick(contexts: readonly Ref<'context'>[], places: Ref<'numbers'>, count: number): Ref<'context'>[] {
    if (!(Number.isInteger(count) && count >= 1)) {
      throw new InferletError('invalid-argument', `count must be a whole number, 1 or more, not ${count}.`);
    }
    const ports = Array.from({ length: count }, (_, i) => `context${i}`);
    const outputs = Object.fromEntries(ports.map((port) => [port, 'context' as const]));
    const inputs = { contexts: { list: contexts.map((from) => ({ from })) }, places: { from: places } };
    const id = this.#add({ kind: 'pick' }, inputs, outputs);
    return ports.map((port) => outputRef(id, port, 'context'));
  }

  /** Vectors of texts from an encoder, in stages of `batch` texts; by default, of as many texts as the encoder was measured to take efficiently. */
  embed(texts: Given<'texts'>, options: ModelOptions & { readonly batch?: number } = {}): Ref<'vectors'> {
    const { model, batch, retries } = options;
    const each = { port: 'texts', batch };
    const inputs = { texts: inputOf(texts) };
    const id = this.#add({ kind: 'embedding', model }, inputs, { vectors: 'vectors' }, { retries, each });
    return outputRef(id, 'vectors', 'vectors');
  }

  /** Scores of documents for a query, by a reranker: larger is better. */
  rerank(
    query: Given<'text'>,
    documents: Given<'texts'>,
    options: ModelOptions & { readonly batch?: number } = {},
  ): Ref<'numbers'> {
    const { model, batch, retries } = options;
    const each = { port: 'documents', batch };
    const inputs = { query: inputOf(query), documents: inputOf(documents) };
    const id = this.#add({ kind: 'reranking', model }, inputs, { scores: 'numbers' }, { retries, each });
    return outputRef(id, 'scores', 'numbers');
  }

  /** Scores of several lists of documents for a query: one list of scores for each. Each list is ranked as soon as it exists. */
  rerankEach(query: Given<'text'>, lists: Ref<'list'>, options: ModelOptions = {}): Ref<'list'> {
    const { model, retries } = options;
    const each = { port: 'documents', batch: 1 };
    const inputs = { query: inputOf(query), documents: inputOf(lists) };
    const id = this.#add({ kind: 'reranking', model }, inputs, { scores: 'list' }, { retries, each });
    return outputRef(id, 'scores', 'list');
  }

  /**
   * Runs a function on the values of its inputs. The function returns a value of the output's type. `kind` says what the function does:
   * `ingestion`, `searching`, `aggregate`, `tool-call`, or `user-defined` (the default).
   *
   * @example
   * const best = g.call('best', { scores, passages }, 'text', ({ scores, passages }) => passages[indexOfMax(scores)] ?? '');
   */
  call<const I extends Inputs, T extends Type>(
    name: string,
    inputs: I,
    type: T,
    call: (inputs: InputValues<I>, context: CallContext) => Values[T] | Promise<Values[T]>,
    options: CallOptions = {},
  ): Ref<T> {
    const { kind = 'user-defined', each, retries } = options;
    const inputsByPort = Object.fromEntries(Object.entries(inputs).map(([port, input]) => [port, inputOf(input)]));
    const node = this.#add({ kind, name, call }, inputsByPort, { value: type }, { retries, each }, name);
    return outputRef(node, 'value', type);
  }

  /** One text of a list; empty where the list is shorter. */
  at(list: Ref<'texts'>, index: number): Ref<'text'> {
    return this.call('at', { list }, 'text', (given) => given.list[index] ?? '', { kind: 'aggregate' });
  }

  /** Runs one of two branches and gives its value; the nodes of the other are skipped. */
  condition<T extends Type>(test: Ref<'flag'>, then: () => Ref<T>, otherwise: () => Ref<T>): Ref<T> {
    const [one, other] = [this.#branch(test, true, then), this.#branch(test, false, otherwise)];
    if (one.type !== other.type) {
      const text = `The branches of a condition give ${one.type} and ${other.type}: let both give the same type.`;
      throw new InferletError('invalid-argument', text);
    }
    const inputs = { test: { from: test }, whenTrue: { from: one }, whenFalse: { from: other } };
    const id = this.#add({ kind: 'condition' }, inputs, { value: one.type });
    return outputRef(id, 'value', one.type);
  }

  /**
   * Runs `body` again and again on the values of the round before, until `done` is true or `most` rounds have run; the last values come out.
   *
   * @example
   * const { draft } = g.loop({ draft: first }, 3, (g, { draft }) => ({ draft: improve(g, draft), done: isGood(g, draft) }));
   */
  loop<S extends Readonly<Record<string, Ref>>>(
    initial: S,
    most: number,
    body: (builder: Builder, state: S) => { readonly [K in keyof S]: S[K] } & { readonly done: Ref<'flag'> },
  ): S {
    if (!(Number.isInteger(most) && most >= 1)) {
      throw new InferletError('invalid-argument', `A loop of ${most} rounds: give a whole number, 1 or more.`);
    }
    if ('done' in initial)
      throw new InferletError('invalid-argument', 'A loop ends by "done": give that value of its state another name.');
    // Each loop prefixes its node ids: a value of another loop's round must not count as the value of a node of this loop.
    const loopNumber = ++this.#loops;
    const inner = new Builder(`${this.#name}/loop${loopNumber === 1 ? '' : `-${loopNumber}`}`, { outer: this });
    const ports = Object.entries(initial);
    const state = Object.fromEntries(
      ports.map(([name, { type }]) => [name, inner.argument(name, type)]),
    ) as unknown as S;
    const results = body(inner, state);
    const outputs = Object.fromEntries(
      [...Object.keys(initial), 'done'].map((name) => [name, { from: results[name] as Ref }]),
    );
    const inputs: Record<string, Input> = {};
    for (const [name, from] of ports) inputs[name] = { from };
    const graph = inner.graph(outputs);
    for (const { outer, inner: argument } of inner.#captured.values()) inputs[argument.node] = { from: outer };
    const types = Object.fromEntries(ports.map(([name, { type }]) => [name, type]));
    const node = this.#add({ kind: 'loop', body: graph, most }, inputs, types);
    return Object.fromEntries(ports.map(([port, { type }]) => [port, outputRef(node, port, type)])) as unknown as S;
  }

  /** The graph so far, with these results. */
  graph(outputs: Readonly<Record<string, Input>>): Graph {
    const adopted: Record<string, Input> = {};
    checkNames(outputs);
    for (const [name, input] of Object.entries(outputs)) adopted[name] = this.#adopt(input);
    return { name: this.#name, nodes: [...this.#nodes], outputs: adopted };
  }

  #branch<T extends Type>(test: Ref<'flag'>, is: boolean, make: () => Ref<T>): Ref<T> {
    const outer = this.#guards;
    const { from } = this.#adopt({ from: test }) as { readonly from: Ref<'flag'> };
    this.#guards = [...outer, { test: from, is }];
    try {
      return make();
    } finally {
      this.#guards = outer;
    }
  }

  #add(
    operation: Operation,
    inputs: Readonly<Record<string, Input>>,
    outputs: Readonly<Record<string, Type>>,
    { retries = 0, each }: { readonly retries?: number | undefined; readonly each?: Elementwise | undefined } = {},
    name: string = operation.kind,
  ): string {
    const adopted: Record<string, Input> = {};
    checkNames(inputs);
    for (const port in inputs) adopted[port] = this.#adopt(inputs[port] as Input);
    // A loop's components may have the names of components outside of it, and their nodes still need ids of their own.
    const loopPrefix = this.#outer && this.#module !== this.#name ? `${this.#name}/` : '';
    const base = `${loopPrefix}${this.#module}/${name}`;
    const count = (this.#counts.get(base) ?? 0) + 1;
    this.#counts.set(base, count);
    const id = newId(count === 1 ? base : `${base}-${count}`, this.#ids);
    // An argument exists before any component, and in both branches of a condition.
    const isGiven = operation.kind === 'argument';
    const node: Node = {
      id,
      operation,
      module: this.#module,
      inputs: adopted,
      outputs,
      after: isGiven ? [] : this.#after,
      ...(this.#ordered && { ordered: true }),
      when: isGiven ? [] : this.#guards,
      ...(each && { each }),
      retries,
    };
    if (!isGiven && node.when.length === 0) this.#waits = true;
    this.#nodes.push(node);
    this.#onNode?.(node);
    return id;
  }

  /** An output of the outer graph becomes an argument of this one. */
  #adopt(input: Input): Input {
    if ('list' in input) return { list: input.list.map((item) => this.#adopt(item)) };
    if (!('from' in input) || !this.#outer || this.#ids.has(input.from.node)) return input;
    const key = keyOf(input.from);
    let captured = this.#captured.get(key);
    if (!captured) {
      const id = `outer:${key}`;
      const { type } = input.from;
      this.#nodes.unshift({
        id,
        operation: { kind: 'argument', name: id },
        module: this.#name,
        inputs: {},
        outputs: { value: type },
        after: [],
        when: [],
        retries: 0,
      });
      captured = { outer: input.from, inner: { node: id, port: 'value', type } };
      this.#captured.set(key, captured);
    }
    return { from: captured.inner };
  }
}

/** Throws for the one name that cannot be a member of an ordinary object. */
function checkNames(named: object): void {
  if (!Object.hasOwn(named, '__proto__')) return;
  const text = 'No input or result can have the name "__proto__": give it another name.';
  throw new InferletError('invalid-argument', text);
}

/** The input for a value of a program: refs inside of lists, nested ones included, stay refs. */
export function inputOf(value: unknown): Input {
  if (isRef(value)) return { from: value };
  if (value instanceof Prompt) throw new InferletError('invalid-argument', 'A prompt is for prefill() and generate().');
  if (Array.isArray(value) && holdsRef(value)) return { list: value.map(inputOf) };
  return { value };
}

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
