import { type AbortSignalLike, abortable, throwIfAborted } from './abort.ts';
import { describe, InferletError } from './errors.ts';
import type { Tool, ToolContext } from './tools.ts';
import { type ParsedCall, ToolCallParser, type ToolFormat } from './tools-parser.ts';

/** A call and what came of it. */
export interface ToolOutcome {
  readonly name: string;
  readonly arguments: unknown;
  /** The call as it was written. */
  readonly source: string;
  readonly ok: boolean;
  /** What the model is shown: the result as text, or what went wrong. */
  readonly content: string;
}

/** How calls are run. */
export interface ToolRunnerOptions {
  /** How the model writes calls; see {@link ToolFormat}. */
  readonly format?: ToolFormat;
  /** Calls under way at once; 8 by default. */
  readonly concurrency?: number;
  /** Most calls of one text; 32 by default. Those beyond are answered with an error. */
  readonly maxCalls?: number;
  /** When it is aborted, nobody waits for calls under way any more, and those that wait for their turn are not made. */
  readonly signal?: AbortSignalLike;
}

/**
 * Runs the calls that a model writes, each the moment its signature closes, while decoding goes on, several at once (as LLMCompiler, Kim et
 * al., ICML 2024, and Pie, SOSP '25, section 7.3). What a tool throws is an outcome too: the model is told, and may do better.
 *
 * @example
 * const runner = new ToolRunner(tools);
 * for await (const text of ctx.generate()) runner.push(text);
 * for (const { name, content } of await runner.outcomes()) log(`${name}: ${content}`);
 */
export class ToolRunner {
  readonly #tools: ReadonlyMap<string, Tool>;
  readonly #parser: ToolCallParser;
  readonly #concurrency: number;
  readonly #maxCalls: number;
  readonly #context: ToolContext;
  readonly #outcomes: Promise<ToolOutcome>[] = [];
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(tools: readonly Tool[], options: ToolRunnerOptions = {}) {
    const { format = 'signature', concurrency = 8, maxCalls = 32, signal } = options;
    if (!(Number.isInteger(concurrency) && concurrency >= 1)) {
      throw new InferletError('invalid-argument', `concurrency must be a whole number, 1 or more, not ${concurrency}.`);
    }
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#parser = new ToolCallParser(tools, format);
    this.#concurrency = concurrency;
    this.#maxCalls = maxCalls;
    this.#context = { signal };
  }

  /** Takes the next piece of a text; calls that it closes are under way when this returns. Answers those. */
  push(text: string): ParsedCall[] {
    const calls = this.#parser.push(text);
    for (const call of calls) this.#outcomes.push(this.#run(call, this.#outcomes.length));
    return calls;
  }

  /** Calls so far. */
  get calls(): number {
    return this.#outcomes.length;
  }

  /** All that was pushed. */
  get text(): string {
    return this.#parser.text;
  }

  /** The text without its calls. */
  get plain(): string {
    return this.#parser.plain;
  }

  /** What came of the calls so far, in the order in which they were written, once all have ended. */
  outcomes(): Promise<ToolOutcome[]> {
    return Promise.all(this.#outcomes);
  }

  async #run({ name, arguments: args, source, fault }: ParsedCall, index: number): Promise<ToolOutcome> {
    const outcome = (ok: boolean, content: string): ToolOutcome => ({ name, arguments: args, source, ok, content });
    const tool = this.#tools.get(name);
    if (fault !== undefined) return outcome(false, `Error: the call cannot be read: ${fault}.`);
    if (!tool) return outcome(false, `Error: there is no tool "${name}", only ${[...this.#tools.keys()].join(', ')}.`);
    if (index >= this.#maxCalls)
      return outcome(false, `Error: not called, since ${this.#maxCalls} calls are the most.`);
    await this.#enter();
    try {
      // It may have waited for others.
      throwIfAborted(this.#context.signal);
      return outcome(true, show(await abortable(tool.call(args, this.#context), this.#context.signal)));
    } catch (error) {
      return outcome(false, `Error: ${describe(error)}`);
    } finally {
      this.#running--;
      this.#waiting.shift()?.();
    }
  }

  async #enter(): Promise<void> {
    while (this.#running >= this.#concurrency) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#running++;
  }
}

/** A result as the model reads it. */
const show = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? 'done'));
