import { type AbortSignalLike, abortable } from '../abort.ts';
import { InferletError, type InferletErrorCode } from '../errors.ts';
import { type Graph, type Input, type Items, type Node, type Ref, refsIn } from './graph.ts';
import type { EngineName } from './sizes.ts';
import { checkArgument, checkValue } from './validate.ts';

/** The values of a node's inputs or outputs, by name. */
export type NodeValues = Readonly<Record<string, unknown>>;

export interface NodeRun {
  readonly signal: AbortSignalLike;
  /** Length of the longest path from the node to the workflow's end, for the batcher; undefined if no pass set it. */
  readonly depth: number | undefined;
  /** Hands an output on before the node has ended. */
  emit(port: string, value: unknown): void;
  /** Forbids another attempt: the client has a part of the output, or the context has lost a part of its text. */
  forbidRetry(): void;
}

/** Runs the nodes that need a model. Inferlets use `deviceEngine`. */
export interface Engine {
  /** Runs a node. Takes over the contexts among the inputs: hands them on as outputs, or leaves them unchanged when it throws. */
  run(node: Node, inputs: NodeValues, run: NodeRun): Promise<NodeValues>;
  /** Makes a context of the same text. Fails after an abort of the signal, and then leaves no new context. */
  fork(context: object, signal: AbortSignalLike): Promise<object>;
  release(context: object): void;
  /** Called once for each node that ran from `began`, a time of `Date.now`, until now. A node that was cut off has failed, too. */
  report(node: Node, began: number, failed: boolean): void;
  /** Tokens up to which a larger batch of a model or encoder takes little more time; undefined before it was measured. */
  efficientTokens(engine: EngineName): number | undefined;
  /** Waits for a time, in milliseconds. Throws the signal's error as soon as it is aborted. */
  pause(milliseconds: number, signal: AbortSignalLike): Promise<void>;
}

/** Surroundings of a node that runs. */
export interface Surroundings extends Omit<NodeRun, 'forbidRetry'> {
  readonly engine: Engine;
  readonly given: NodeValues;
  /** Runs a graph within this one, for a loop. */
  runGraph(graph: Graph, given: NodeValues): Promise<NodeValues>;
}

/**
 * Runs a node until it succeeds, `retries` + 1 times at most, and checks the values that functions of users return. Retries no failure that
 * every attempt would have, and no node whose output was already handed on or sent. Pauses first where time may cure the failure.
 */
export async function runNode(node: Node, inputs: NodeValues, around: Surroundings): Promise<NodeValues> {
  let isRetryForbidden = false;
  const forbidRetry = () => {
    isRetryForbidden = true;
  };
  const emit = (port: string, value: unknown) => {
    forbidRetry();
    around.emit(port, value);
  };
  for (let attempt = 0; ; attempt++) {
    try {
      return await operate(node, inputs, { ...around, emit, forbidRetry });
    } catch (thrown) {
      const error = InferletError.from(thrown);
      const mayRetry = attempt < node.retries && !isRetryForbidden && !consumes(node);
      const willRetry = mayRetry && !around.signal.aborted && !FINAL.has(error.code);
      if (!willRetry) throw thrown;
      if (PASSING.has(error.code)) {
        await around.engine.pause(Math.min(FIRST_PAUSE_MS * 2 ** attempt, LONGEST_PAUSE_MS), around.signal);
      }
    }
  }
}

/** True for a loop over contexts: its first round has taken them. */
const consumes = ({ operation, inputs }: Node): boolean =>
  operation.kind === 'loop' && Object.values(inputs).some(isContextRef);

/** Failures that another attempt would have, too. */
const FINAL: ReadonlySet<InferletErrorCode> = new Set<InferletErrorCode>([
  'invalid-argument',
  'not-owned',
  'unsupported',
  'not-found',
  'context-overflow',
  'cancelled',
  'deadline-exceeded',
  'terminated',
  'closed',
]);

/** Failures that time may cure: a host restarts, or other inferlets use up a limit. */
const PASSING: ReadonlySet<InferletErrorCode> = new Set<InferletErrorCode>(['unavailable', 'limit-exceeded']);
/** The pause before the second attempt. Each further pause is twice as long, up to `LONGEST_PAUSE_MS`. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2000;

async function operate(node: Node, inputs: NodeValues, around: Surroundings & NodeRun): Promise<NodeValues> {
  const { operation } = node;
  switch (operation.kind) {
    case 'argument': {
      const { name, index } = operation;
      const whole = Object.hasOwn(around.given, name) ? around.given[name] : undefined;
      const value = index === undefined ? whole : (whole as readonly unknown[] | undefined)?.[index];
      checkArgument(value, node.outputs.value ?? 'json', index === undefined ? name : `${name}[${index}]`);
      return { value };
    }
    case 'fork':
      return { context: inputs.context };
    case 'condition':
      return { value: inputs.value };
    case 'pick':
      return pick(node, inputs, around);
    case 'loop':
      return loop(node, operation, inputs, around);
    case 'ingestion':
    case 'searching':
    case 'aggregate':
    case 'tool-call':
    case 'user-defined':
      return call(node, operation.call, inputs, around.signal);
    case 'prefetching':
      // A prefetch only saves time. If it fails, the node that opens the context reports the error.
      return around.engine.run(node, inputs, around).catch(() => ({}));
    default:
      return around.engine.run(node, inputs, around);
  }
}

/** The function's value is the node's only output, or an object with a member for each output. */
async function call(
  node: Node,
  userFunction: (inputs: NodeValues, context: { signal: AbortSignalLike }) => unknown,
  inputs: NodeValues,
  signal: AbortSignalLike,
): Promise<NodeValues> {
  const returned = userFunction(inputs, { signal });
  const value = returned instanceof Promise ? await abortable(returned, signal) : returned;
  const ports = Object.keys(node.outputs);
  const values: NodeValues = ports.length === 1 ? { [ports[0] as string]: value } : (value as NodeValues);
  for (const port of ports) checkValue(values?.[port], node.outputs[port] ?? 'json', node, port);
  return values;
}

/** The contexts at the indexes in the input `places`. The caller, which owns all contexts, releases the others. */
async function pick({ id, outputs }: Node, inputs: NodeValues, { engine, signal }: Surroundings): Promise<NodeValues> {
  const { contexts, places } = inputs as { readonly contexts: readonly object[]; readonly places: readonly number[] };
  const picked: Record<string, object> = {};
  const forks: object[] = [];
  try {
    for (const [i, port] of Object.keys(outputs).entries()) {
      const context = contexts[places[i] ?? -1];
      if (!context) {
        const text = `Node "${id}" must give a place below ${contexts.length} for "${port}", and gave ${places[i]}.`;
        throw new InferletError('invalid-argument', text);
      }
      const isPicked = Object.values(picked).includes(context);
      if (isPicked) forks.push(await engine.fork(context, signal));
      picked[port] = isPicked ? (forks.at(-1) as object) : context;
    }
  } catch (error) {
    for (const fork of forks) engine.release(fork);
    throw error;
  }
  return picked;
}

/** Runs the body until its result `done` is true, at most `most` times. Its other results are the arguments of the next round. */
async function loop(
  { outputs, inputs: origins }: Node,
  { body, most }: { readonly body: Graph; readonly most: number },
  inputs: NodeValues,
  { engine, signal, runGraph }: Surroundings,
): Promise<NodeValues> {
  const state: Record<string, unknown> = {};
  for (const name in outputs) state[name] = inputs[name];
  const isShared = (name: string): boolean => !(name in outputs) && isContextRef(origins[name]);
  const shared = Object.keys(inputs).filter(isShared);
  for (let round = 0; round < most; round++) {
    // A round consumes its contexts, and the next round needs those from outside again: give each round forks.
    const forks: Record<string, object> = {};
    try {
      for (const name of shared) forks[name] = await engine.fork(inputs[name] as object, signal);
      const { done, ...next } = await runGraph(body, { ...inputs, ...state, ...forks });
      Object.assign(state, next);
      const contexts = new Set<unknown>();
      for (const name in outputs) {
        if (outputs[name] !== 'context') continue;
        // A body may give one context under two names, whose readers change it separately.
        if (contexts.has(state[name])) state[name] = await engine.fork(state[name] as object, signal);
        contexts.add(state[name]);
      }
      if (done === true) break;
    } catch (error) {
      // The round may have failed before it took over the contexts of the round before.
      for (const name in outputs) if (outputs[name] === 'context') engine.release(state[name] as object);
      throw error;
    } finally {
      const kept = new Set(Object.values(state));
      for (const fork of Object.values(forks)) if (!kept.has(fork)) engine.release(fork);
    }
  }
  return state;
}

const isContextRef = (input: Input | undefined): boolean =>
  input !== undefined && 'from' in input && input.from.type === 'context';

/** The value of an input; `read` gives the values of other nodes' outputs. */
export function inputValue(input: Input, read: (ref: Ref) => unknown): unknown {
  if ('from' in input) return read(input.from);
  return 'list' in input ? input.list.map((item) => inputValue(item, read)) : input.value;
}

/** The inputs that a node reads. A condition reads only the branch that it takes; `dropped` holds the inputs that it does not read. */
export function inputsOf(
  node: Node,
  read: (ref: Ref) => unknown,
): { readonly inputs: Readonly<Record<string, Input>>; readonly dropped: readonly Ref[] } {
  const { inputs } = node;
  if (node.operation.kind !== 'condition') return { inputs, dropped: [] };
  const test = inputValue(inputs.test as Input, read) === true;
  const [taken, notTaken] = test ? [inputs.whenTrue, inputs.whenFalse] : [inputs.whenFalse, inputs.whenTrue];
  return { inputs: { value: taken as Input }, dropped: refsIn(notTaken as Input) };
}

/** A sentence ends with a mark and any closing quotes or brackets, before white space. */
const SENTENCE_END = /[.!?]["')\]]*\s/g;
const LINE_END = /\n/g;

/**
 * Takes the first sentences or lines of a growing text. A line is complete at its line break, and a sentence at the
 * white space after its end, so that later text cannot change it.
 */
export class ItemSplitter {
  readonly #items: Items;
  #text = '';
  #taken = 0;

  constructor(items: Items) {
    this.#items = items;
  }

  /** True when all items are complete. */
  get isFull(): boolean {
    return this.#taken === this.#items.count;
  }

  /** Adds text. Returns the items that it completes, with their indices. */
  push(text: string): { readonly index: number; readonly item: string }[] {
    this.#text += text;
    const complete: { index: number; item: string }[] = [];
    const end = new RegExp(this.#items.by === 'line' ? LINE_END : SENTENCE_END);
    for (let found = end.exec(this.#text); found && !this.isFull; found = end.exec(this.#text)) {
      const item = this.#text.slice(0, end.lastIndex).trim();
      this.#text = this.#text.slice(end.lastIndex);
      end.lastIndex = 0;
      if (item !== '') complete.push({ index: this.#taken++, item });
    }
    return complete;
  }

  /** The remaining items at the end of the text: first the rest of the text, then empty items. */
  end(): { readonly index: number; readonly item: string }[] {
    const rest: { index: number; item: string }[] = [];
    for (let item = this.#text.trim(); !this.isFull; item = '') rest.push({ index: this.#taken++, item });
    return rest;
  }
}
