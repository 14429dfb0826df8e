import { type AbortSignalLike, aborter } from '../abort.ts';
import { chatVariables } from '../context/chat.ts';
import type { Context } from '../context/context.ts';
import { type ModelInfo, model, models } from '../context/models.ts';
import { InferletError } from '../errors.ts';
import type { Sampler } from '../generate/samplers.ts';
import { attempt, tokenize as wire } from '../raw.ts';
import { type ToolFormat, type ToolOutcome, ToolRunner } from './calls.ts';
import { type Tool, toolSignature, toolSpec } from './tools.ts';

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

/** The form in which a model reads its tools, writes calls and reads their results. */
export interface Dialect {
  /** Turns of the model's chat template, or one text (`Thought: … Action: … Observation: …`). */
  readonly turns: 'chat' | 'text';
  /** The form of a call. {@link dialectOf} never returns `code`, because no template shows it; a caller may set it. */
  readonly format: ToolFormat;
}

/** The task of an agent. */
export interface AgentTask {
  readonly question: string;
  /** Instructions before the question. A chat model gets them as its system turn. */
  readonly system?: string;
}

/** Name of the tool in the call that `probe` renders. */
const PROBE = 'pie_probe';
const dialects = new Map<string, Dialect>();

/** The dialect of a model: the call format of its chat template, or plain text when the model has no template. */
export function dialectOf(name?: string): Dialect {
  const key = model(name).name;
  let dialect = dialects.get(key);
  if (!dialect) {
    dialect = probe(key);
    dialects.set(key, dialect);
  }
  return dialect;
}

/** The named model. Without a name, the first granted model with a chat template, or else the default model. */
export function chatModel(name?: string): ModelInfo {
  if (name !== undefined) return model(name);
  return models().find((candidate) => dialectOf(candidate.name).turns === 'chat') ?? model();
}

/** Renders a turn with a call by the model's template, and recognizes the format of the call in the text. */
function probe(name: string): Dialect {
  const call = { function: { name: PROBE, arguments: {} } };
  try {
    const turns = [
      { role: 'user', content: 'q' },
      { role: 'assistant', content: '', tool_calls: [call] },
    ];
    const rendered = render(name, turns);
    if (rendered.includes('<tool_call>')) return { turns: 'chat', format: 'hermes' };
    return { turns: 'chat', format: rendered.includes(PROBE) ? 'json' : 'signature' };
  } catch (error) {
    if (!(error instanceof InferletError)) throw error;
    if (error.code === 'unsupported') return { turns: 'text', format: 'signature' };
    // A template that refuses a turn with a call still renders plain turns.
    return { turns: 'chat', format: 'signature' };
  }
}

/**
 * Fills an empty context with the beginning of a task: the tools (pass none if `system` describes them), the question, and the start of the
 * model's first turn.
 */
export function beginTask(
  ctx: Context,
  { question, system }: AgentTask,
  tools: readonly Tool[],
  dialect: Dialect,
): void {
  const { turns, format } = dialect;
  if (turns === 'text') {
    // A caller that sets `code` describes its one tool in `system`.
    const preamble = [system, format === 'code' ? '' : toolList(tools)].filter(Boolean).join('\n\n');
    ctx.fill(`${preamble}\n\nQuestion: ${question}\nThought:`);
    return;
  }
  // With `hermes` and `json`, the template itself lists the tools.
  const systemText = format === 'signature' ? [system, toolList(tools)].filter(Boolean).join('\n\n') : system;
  const chatOptions = format === 'hermes' || format === 'json' ? { tools: tools.map(toolSpec) } : {};
  const first = systemText === undefined || systemText === '' ? [] : [{ role: 'system', content: systemText }];
  const messages = [...first, { role: 'user', content: question }];
  ctx.chat(messages, chatOptions);
}

const toolList = (tools: readonly Tool[]): string =>
  tools.length === 0
    ? ''
    : `Tools:\n${tools.map((tool) => `- ${toolSignature(tool)}`).join('\n')}\n` +
      'Write "Thought:" and "Action:" with one call, read its "Observation:", and at last write "Answer:".';

/**
 * Ends the model's turn, appends the outcomes of its calls, and begins its next turn. Only the appended tokens are computed. Special tokens
 * in tool results are treated as plain text.
 */
export function appendOutcomes(ctx: Context, outcomes: readonly ToolOutcome[], dialect: Dialect): void {
  if (dialect.turns === 'text') {
    ctx.fill(`\nObservation: ${outcomes.map(({ content }) => content).join('\nObservation: ')}\nThought:`);
    return;
  }
  for (const { text, fromTool } of resultTurns(ctx.model.name, outcomes)) ctx.fill(text, { special: !fromTool });
}

interface TurnPiece {
  readonly text: string;
  /** True for the text of a tool. It may come from an attacker, so its special tokens are plain text. */
  readonly fromTool: boolean;
}

/** Stands for the assistant's words while a template is rendered. */
const SPOKEN = '[[spoken]]';
/** Stands for the i-th result while a template is rendered. */
const markOf = (i: number): string => `[[result ${i}]]`;

/**
 * The text of the turns that bring the results, in pieces: each result, and the template's own text around the results. This function renders a
 * conversation with a mark in place of each result, takes the text after the assistant's words, and splits that text at the marks.
 */
function resultTurns(name: string, outcomes: readonly ToolOutcome[]): TurnPiece[] {
  // Some templates know no turn of a tool. With them, turns of the user bring the results.
  const roles = ['tool', 'user'];
  for (const role of roles) {
    const turns = outcomes.map((_, i) => ({ role, content: markOf(i) }));
    const rendered = attemptRender(name, [
      { role: 'user', content: 'q' },
      { role: 'assistant', content: SPOKEN },
      ...turns,
    ]);
    const after = rendered?.split(SPOKEN)[1];
    if (after === undefined || !outcomes.every((_, i) => after.includes(markOf(i)))) continue;
    let rest = after;
    const pieces = outcomes.flatMap(({ content }, i): TurnPiece[] => {
      const [before = '', behind = ''] = rest.split(markOf(i));
      rest = behind;
      return [
        { text: before, fromTool: false },
        { text: content, fromTool: true },
      ];
    });
    return [...pieces, { text: rest, fromTool: false }];
  }
  throw new InferletError('unsupported', `The chat template of ${name} has no turn for the results of tools.`);
}

function attemptRender(name: string, messages: readonly object[]): string | undefined {
  try {
    return render(name, messages);
  } catch (error) {
    // Some templates refuse unknown roles, or turns that do not alternate.
    if (error instanceof InferletError && error.code === 'invalid-argument') return undefined;
    throw error;
  }
}

const render = (name: string, messages: readonly object[]): string =>
  attempt(() => wire.renderChat(name, chatVariables(name, messages as Parameters<typeof chatVariables>[1])));
