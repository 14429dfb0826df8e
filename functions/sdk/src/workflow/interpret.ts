import { type AbortSignalLike, throwIfAborted } from '../abort.ts';
import { InferletError } from '../errors.ts';
import { type Engine, inputsOf, inputValue, type NodeValues, runNode } from './engine.ts';
import { execute } from './execute.ts';
import { type Input, keyOf, type Node, type Ref } from './graph.ts';

/** Runs nodes one after another as a program makes them, so that the program can look at their values. */
export class Interpreter {
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
