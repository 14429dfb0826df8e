import { type AbortSignalLike, abortable, throwIfAborted } from '../abort.ts';
import { describe } from '../errors.ts';
import { checkCount } from '../option-checks.ts';
import type { Tool, ToolContext } from './tools.ts';
import { type ParsedCall, ToolCallParser, type ToolFormat } from './tools-parser.ts';

/** A call and its outcome. */
export interface ToolOutcome {
  readonly name: string;
  readonly arguments: unknown;
  /** The call as the model wrote it. */
  readonly source: string;
  readonly ok: boolean;
  /** Text for the model: the result or the error. */
  readonly content: string;
}

/** Options of a {@link ToolRunner}. */
export interface ToolRunnerOptions {
  /** The format of the model's calls; see {@link ToolFormat}. */
  readonly format?: ToolFormat;
  /** Most concurrent calls; 8 by default. */
  readonly concurrency?: number;
  /** Most calls of one text; 32 by default. Further calls get an error as their outcome. */
  readonly maxCalls?: number;
  /** When aborted, the runner stops waiting for running calls and does not start queued ones. */
  readonly signal?: AbortSignalLike;
}

/**
 * Runs the calls that a model writes, while decoding continues. Each call starts as soon as its text is complete, and several run at once (compare
 * LLMCompiler, Kim et al., ICML 2024, and Pie, SOSP '25, section 7.3). A tool's exception is an outcome too, so that the model can react.
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
    checkCount('concurrency', concurrency);
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#parser = new ToolCallParser(tools, format);
    this.#concurrency = concurrency;
    this.#maxCalls = maxCalls;
    this.#context = { signal };
  }

  /** Takes the next piece of a text and starts the calls that it closes. @returns these calls */
  push(text: string): ParsedCall[] {
    const calls = this.#parser.push(text);
    for (const call of calls) this.#outcomes.push(this.#run(call, this.#outcomes.length));
    return calls;
  }

  /** Number of calls so far. */
  get calls(): number {
    return this.#outcomes.length;
  }

  /** The whole text so far. */
  get text(): string {
    return this.#parser.text;
  }

  /** The text without its calls. */
  get plain(): string {
    return this.#parser.plain;
  }

  /** Waits for all calls so far. @returns their outcomes, in the order of the calls in the text */
  outcomes(): Promise<ToolOutcome[]> {
    return Promise.all(this.#outcomes);
  }

  async #run({ name, arguments: args, source, fault }: ParsedCall, index: number): Promise<ToolOutcome> {
    const outcome = (ok: boolean, content: string): ToolOutcome => ({ name, arguments: args, source, ok, content });
    const tool = this.#tools.get(name);
    if (fault !== undefined) return outcome(false, `Error: the call cannot be read: ${fault}.`);
    if (!tool) return outcome(false, `Error: there is no tool "${name}", only ${[...this.#tools.keys()].join(', ')}.`);
    if (index >= this.#maxCalls)
      return outcome(false, `Error: not called: one text may make ${this.#maxCalls} calls at most.`);
    await this.#enter();
    try {
      // The signal may have been aborted while this call waited for its turn.
      throwIfAborted(this.#context.signal);
      return outcome(true, show(await abortable(tool.call(args, this.#context), this.#context.signal)));
    } catch (error) {
      return outcome(false, `Error: ${describe(error)}`);
    } finally {
      this.#running--;
      const wakeNext = this.#waiting.shift();
      wakeNext?.();
    }
  }

  async #enter(): Promise<void> {
    while (this.#running >= this.#concurrency) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#running++;
  }
}

/** A result as text for the model. */
const show = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? 'done'));
