import { type Aborter, type AbortSignalLike, abortable, aborter, throwIfAborted } from '../abort.ts';
import { InferletError } from '../errors.ts';
import { type Engine, inputsOf, inputValue, type NodeValues, runNode } from './engine.ts';
import { depthsOf, type Graph, type Input, keyOf, type Node, needsOf, type Ref, refsIn, resultsOf } from './graph.ts';

/** A change of a node's state. */
export interface NodeEvent {
  readonly node: Node;
  readonly what: 'started' | 'ended' | 'skipped' | 'failed';
}

export interface ExecuteOptions {
  readonly engine: Engine;
  /** Values of the graph's arguments. */
  readonly given?: NodeValues | undefined;
  /** Ends the workflow. */
  readonly signal?: AbortSignalLike | undefined;
  /** Most nodes that run at once; 32 by default. */
  readonly concurrency?: number | undefined;
  /** Depth of the graph's end, for the graph of a loop; 0 by default. */
  readonly depth?: number | undefined;
  readonly onNode?: ((event: NodeEvent) => void) | undefined;
}

const CONCURRENCY = 32;

/**
 * Runs a graph and returns its results. Each node starts when its inputs exist; nodes with the longest path to a result start first. The first
 * failure aborts the other nodes and is thrown. A value, and the memory of a context, is released after its last reader.
 */
export async function execute(graph: Graph, options: ExecuteOptions): Promise<NodeValues> {
  const { concurrency = CONCURRENCY } = options;
  if (!(Number.isInteger(concurrency) && concurrency >= 1)) {
    throw new InferletError('invalid-argument', `concurrency must be a whole number, 1 or more, not ${concurrency}.`);
  }
  using abort = aborter(options.signal);
  const execution = new Execution(graph, options, concurrency, abort);
  try {
    await abortable(execution.run(), options.signal);
    return execution.results();
  } catch (error) {
    abort.abort(new InferletError('cancelled', 'Another node of the workflow failed.'));
    throw error;
  } finally {
    execution.release();
  }
}

/** The value of each output of a node that was skipped because of its guards. */
const SKIPPED = Symbol('skipped');

class Execution {
  readonly #graph: Graph;
  readonly #options: ExecuteOptions;
  readonly #concurrency: number;
  readonly #abort: Aborter;
  readonly #values = new Map<string, unknown>();
  /** Number of readers of each output that have not read it yet. */
  readonly #readers = new Map<string, number>();
  /** Nodes that wait for an output or for a module's end. */
  readonly #waiting = new Map<string, Node[]>();
  readonly #missingCounts = new Map<Node, number>();
  readonly #unfinishedCounts = new Map<string, number>();
  readonly #depths: ReadonlyMap<string, number>;
  readonly #ready: Node[] = [];
  readonly #begun = new Set<Node>();
  /** Nodes that run, with the times at which they began. */
  readonly #runs = new Map<Node, number>();
  readonly #skipping: Node[] = [];
  readonly #published = new Set<string>();
  #finish: () => void = () => undefined;
  #fail: (error: unknown) => void = () => undefined;
  #nodesLeft: number;
  #isOver = false;

  constructor(graph: Graph, options: ExecuteOptions, concurrency: number, abort: Aborter) {
    this.#graph = graph;
    this.#options = options;
    this.#concurrency = concurrency;
    this.#abort = abort;
    this.#nodesLeft = graph.nodes.length;
    this.#depths = depthsOf(graph);
    for (const { module } of graph.nodes)
      this.#unfinishedCounts.set(module, (this.#unfinishedCounts.get(module) ?? 0) + 1);
    for (const node of graph.nodes) {
      for (const name in node.inputs) for (const ref of refsIn(node.inputs[name] as Input)) this.#count(ref);
      const keys = new Set(needsOf(node).map(keyOf));
      for (const module of node.after) if (this.#unfinishedCounts.has(module)) keys.add(endOf(module));
      this.#missingCounts.set(node, keys.size);
      for (const key of keys) {
        const nodes = this.#waiting.get(key);
        if (nodes) nodes.push(node);
        else this.#waiting.set(key, [node]);
      }
    }
    for (const ref of resultsOf(graph)) this.#count(ref);
  }

  /** Starts the nodes. Resolves when the last node has ended, or rejects with the first failure. */
  run(): Promise<void> {
    return new Promise((resolve, reject) => {
      [this.#finish, this.#fail] = [resolve, reject];
      if (this.#nodesLeft === 0) resolve();
      for (const node of this.#graph.nodes) if (this.#missingCounts.get(node) === 0) this.#makeReady(node);
      this.#pump();
    });
  }

  results(): NodeValues {
    const read = (ref: Ref) => this.#values.get(keyOf(ref));
    const results: Record<string, unknown> = {};
    for (const [name, input] of Object.entries(this.#graph.outputs)) results[name] = inputValue(input, read);
    // The results are the caller's, contexts included.
    for (const ref of resultsOf(this.#graph)) this.#values.delete(keyOf(ref));
    return results;
  }

  /** Reports the nodes that still run, and releases all stored contexts. From then on, `#publish` releases a context as soon as it arrives. */
  release(): void {
    this.#isOver = true;
    for (const node of this.#runs.keys()) this.#report(node, true);
    for (const node of this.#graph.nodes) {
      for (const [port, type] of Object.entries(node.outputs)) {
        const context = this.#values.get(keyOf({ node: node.id, port }));
        if (type === 'context' && isContext(context)) this.#options.engine.release(context);
      }
    }
    this.#values.clear();
  }

  #count(ref: Ref): void {
    const key = keyOf(ref);
    this.#readers.set(key, (this.#readers.get(key) ?? 0) + 1);
  }

  #makeReady(node: Node): void {
    const depth = this.#depths.get(node.id) ?? 0;
    let at = this.#ready.length;
    while (at > 0 && (this.#depths.get(this.#ready[at - 1]?.id ?? '') ?? 0) < depth) at--;
    this.#ready.splice(at, 0, node);
  }

  #pump(): void {
    while (!this.#isOver && this.#runs.size < this.#concurrency) {
      const node = this.#ready.shift();
      if (!node) return;
      if (this.#begun.has(node)) continue;
      this.#begun.add(node);
      this.#runs.set(node, Date.now());
      this.#options.onNode?.({ node, what: 'started' });
      this.#run(node)
        .then(() => this.#ended(node, 'ended'))
        .catch((error: unknown) => {
          this.#isOver = true;
          this.#report(node, true);
          this.#fail(error);
          this.#options.onNode?.({ node, what: 'failed' });
        });
    }
  }

  /** Removes a node from the running ones and reports it to the engine, once. */
  #report(node: Node, failed: boolean): void {
    const began = this.#runs.get(node);
    if (began === undefined) return;
    this.#runs.delete(node);
    this.#options.engine.report(node, began, failed);
  }

  async #run(node: Node): Promise<void> {
    const { engine, given = {}, depth: end = 0 } = this.#options;
    const depth = node.depth === undefined ? undefined : node.depth + end;
    const { inputs, dropped } = inputsOf(node, (ref) => this.#values.get(keyOf(ref)));
    for (const ref of dropped) this.#drop(ref);
    const owned = new Set<object>();
    let outputs: NodeValues = {};
    try {
      const values: Record<string, unknown> = {};
      for (const name in inputs) {
        const taken = this.#take(inputs[name] as Input, owned);
        values[name] = taken instanceof Promise ? await taken : taken;
      }
      // Taking the inputs may have waited for a fork.
      throwIfAborted(this.#abort.signal);
      outputs = await runNode(node, values, {
        engine,
        given,
        signal: this.#abort.signal,
        depth,
        emit: (port, value) => this.#publish(node, port, value),
        runGraph: (graph, state) =>
          execute(graph, { ...this.#options, given: state, signal: this.#abort.signal, depth }),
      });
    } finally {
      for (const value of Object.values(outputs)) if (isContext(value)) owned.delete(value);
      for (const context of owned) engine.release(context);
    }
    for (const port in node.outputs) this.#publish(node, port, outputs[port]);
  }

  /** An input's value. A context that others still read is forked; `owned` gets each context that the reader now owns. */
  #take(input: Input, owned: Set<object>): unknown {
    if ('value' in input) return input.value;
    if ('list' in input) {
      const items = input.list.map((item) => this.#take(item, owned));
      return items.some((item) => item instanceof Promise) ? allEnded(items) : items;
    }
    const ref = input.from;
    const value = this.#values.get(keyOf(ref));
    const readersLeft = this.#forget(ref);
    if (ref.type !== 'context' || !isContext(value)) return value;
    if (readersLeft === 0) {
      owned.add(value);
      return value;
    }
    return this.#options.engine.fork(value, this.#abort.signal).then((fork) => {
      owned.add(fork);
      return fork;
    });
  }

  #drop(ref: Ref): void {
    const value = this.#values.get(keyOf(ref));
    if (this.#forget(ref) === 0 && ref.type === 'context' && isContext(value)) this.#options.engine.release(value);
  }

  /** Counts off a reader of an output, and removes the output from the store after the last reader. @returns the number of readers left */
  #forget(ref: Ref): number {
    const key = keyOf(ref);
    const readersLeft = (this.#readers.get(key) ?? 1) - 1;
    this.#readers.set(key, readersLeft);
    // A flag stays, because guards (`when`) may still read it: they are not counted as readers.
    if (readersLeft === 0 && ref.type !== 'flag') this.#values.delete(key);
    return readersLeft;
  }

  #publish(node: Node, port: string, value: unknown): void {
    const key = keyOf({ node: node.id, port });
    // An output may be handed on before its node ends.
    if (this.#published.has(key)) return;
    this.#published.add(key);
    const type = node.outputs[port];
    if (this.#isOver || (type === 'context' && !this.#readers.get(key))) {
      if (type === 'context' && isContext(value)) this.#options.engine.release(value);
      return;
    }
    if (this.#readers.get(key) || type === 'flag') this.#values.set(key, value);
    for (const reader of this.#waiting.get(key) ?? []) this.#arrived(reader);
    this.#pump();
  }

  #arrived(node: Node): void {
    if (this.#begun.has(node)) return;
    const missing = (this.#missingCounts.get(node) ?? 1) - 1;
    this.#missingCounts.set(node, missing);
    if (this.#isExcluded(node)) this.#skip(node);
    else if (missing === 0) this.#makeReady(node);
  }

  #isExcluded(node: Node): boolean {
    return node.when.some(({ test, is }) => {
      const value = this.#values.get(keyOf(test));
      return value === SKIPPED || (typeof value === 'boolean' && value !== is);
    });
  }

  /** Skips a node, and then those that wait for it, one after another: a branch may be longer than the stack is deep. */
  #skip(first: Node): void {
    this.#begun.add(first);
    if (this.#skipping.push(first) > 1) return;
    try {
      for (const node of this.#skipping) {
        for (const name in node.inputs) for (const ref of refsIn(node.inputs[name] as Input)) this.#drop(ref);
        for (const port in node.outputs) this.#publish(node, port, SKIPPED);
        this.#ended(node, 'skipped');
      }
    } finally {
      this.#skipping.length = 0;
    }
  }

  #ended(node: Node, what: 'ended' | 'skipped'): void {
    if (what === 'ended') this.#report(node, false);
    this.#options.onNode?.({ node, what });
    const unfinished = (this.#unfinishedCounts.get(node.module) ?? 1) - 1;
    this.#unfinishedCounts.set(node.module, unfinished);
    if (unfinished === 0) for (const waiting of this.#waiting.get(endOf(node.module)) ?? []) this.#arrived(waiting);
    this.#nodesLeft--;
    if (this.#nodesLeft === 0) this.#finish();
    this.#pump();
  }
}

/** The values, once all exist. If one fails, waits for the others nevertheless, so that their owner can release them. */
async function allEnded(items: readonly unknown[]): Promise<unknown[]> {
  await Promise.allSettled(items);
  return Promise.all(items);
}

/** The key of a module's end in `#waiting`. No output has this key, since an output's key has the node's id before the dot. */
const endOf = (module: string): string => `.${module}`;

const isContext = (value: unknown): value is object => typeof value === 'object' && value !== null;
