import { type AbortSignalLike, aborter } from '../abort.ts';
import type { Context } from '../context/context.ts';
import { InferletError } from '../errors.ts';
import type { Sampler } from '../generate/samplers.ts';
import { type AgentTask, appendOutcomes, beginTask, type Dialect, dialectOf } from './agents-dialect.ts';
import type { Tool } from './tools.ts';
import { type ToolOutcome, ToolRunner } from './tools-runner.ts';

export { type AgentTask, appendOutcomes, beginTask, chatModel, type Dialect, dialectOf } from './agents-dialect.ts';

/** Options of {@link react}. */
export interface ReactOptions extends Partial<AgentTask> {
  readonly tools: readonly Tool[];
  /** Maximum number of steps, the one with the answer included; 8 by default. */
  readonly maxSteps?: number;
  /** Maximum number of tokens of one step; 256 by default. */
  readonly maxTokens?: number;
  /** The sampler, or a function that returns one for each step, such as `scripts(…)`; greedy by default. */
  readonly sampler?: Sampler | (() => Sampler);
  /** The model's own dialect by default. */
  readonly dialect?: Dialect;
  /** Maximum number of concurrent calls of one step; 8 by default. */
  readonly concurrency?: number;
  readonly signal?: AbortSignalLike;
}

/** One step of the agent: the model's text and the calls in it. */
export interface AgentStep {
  readonly index: number;
  /** The model's text, without its calls. */
  readonly thought: string;
  /** The model's calls and their outcomes. */
  readonly calls: readonly ToolOutcome[];
  /** Set in the last step. */
  readonly answer?: string;
}

/**
 * Reasons and acts in steps (Yao et al., ReAct, ICLR 2023): the model thinks, calls tools and reads their results. A step without a call is
 * the answer. Results are appended to the computed context, so nothing is prefilled twice. A `question` replaces the context by the task in a chat
 * dialect, and appends the task to the context in a text dialect. Without a question, the agent continues the context and ignores `system`. A step
 * may hold any number of calls in a chat dialect, and one in a text dialect. Throws `limit-exceeded` when `maxSteps` steps brought no answer.
 *
 * @example
 * using ctx = new Context();
 * for await (const { thought, calls, answer } of react(ctx, { question: 'How old is the mayor of Rome?', tools: [search] })) {
 *   await sendJson({ thought, calls, answer });
 * }
 */
export async function* react(ctx: Context, options: ReactOptions): AsyncGenerator<AgentStep, void, void> {
  const { tools, question, system, maxSteps = 8, maxTokens = 256, sampler, concurrency } = options;
  const dialect = options.dialect ?? dialectOf(ctx.model.name);
  if (question !== undefined) beginTask(ctx, { question, system }, tools, dialect);
  using agentAborter = aborter(options.signal);
  const { signal } = agentAborter;
  try {
    for (let index = 0; index < maxSteps; index++) {
      const runner = new ToolRunner(tools, { format: dialect.format, concurrency, signal });
      const stepSampler = typeof sampler === 'function' ? sampler() : sampler;
      await turn(ctx, runner, dialect, { maxTokens, sampler: stepSampler, signal });
      const calls = await runner.outcomes();
      const step = { index, thought: runner.plain, calls };
      if (calls.length === 0) {
        yield { ...step, answer: answerOf(runner.plain, dialect) };
        return;
      }
      yield step;
      appendOutcomes(ctx, calls, dialect);
    }
  } finally {
    // Cancel the calls still under way when a turn fails or the caller leaves: their results are no longer needed.
    agentAborter.abort(new InferletError('cancelled', 'The agent has ended.'));
  }
  throw new InferletError('limit-exceeded', `There is no answer after ${maxSteps} steps: allow more (maxSteps).`);
}

interface TurnOptions {
  readonly maxTokens: number;
  readonly sampler: Sampler | undefined;
  readonly signal: AbortSignalLike | undefined;
}

/** Lets the model write its part of a step. Calls run while it continues to write. */
async function turn(ctx: Context, runner: ToolRunner, { turns }: Dialect, options: TurnOptions): Promise<void> {
  if (turns === 'chat') {
    for await (const text of ctx.generate(options)) runner.push(text);
    return;
  }
  // Decode token by token, so that the context ends with the call: a plain-text model would invent the call's result.
  for await (const text of ctx.generate({ ...options, decode: 'step', stop: 'Observation:' })) {
    if (runner.push(text).length > 0) break;
  }
}

function answerOf(text: string, { turns }: Dialect): string {
  if (turns === 'chat') return text;
  const at = text.lastIndexOf('Answer:');
  return (at < 0 ? text : text.slice(at + 'Answer:'.length)).trim();
}
