/** `@pie/inferlet/workflow`: workflows and programs as graphs of primitive operations, and passes that make these graphs faster. */
import { log } from '../io/inferlet.ts';
import type { Builder } from './builder.ts';
import { deviceEngine } from './device.ts';
import type { PlanOptions } from './plan.ts';
import { type Program, type ProgramBody, programOn, type Workflow, workflowOn } from './program.ts';

export {
  Builder,
  type CallOptions,
  compared,
  type Given,
  type NodeOptions,
  Prompt,
  type PromptValue,
  prompt,
  tested,
  Untraceable,
  undecided,
  type Variable,
} from './builder.ts';
export { drawSvg, drawText } from './draw.ts';
export type { NodeEvent } from './execute.ts';
export type { Graph, Guard, Input, Items, Kind, Node, Operation, Ref, Type, Values } from './graph.ts';
export {
  contextPrefetch,
  decodingPipelining,
  dependencyPruning,
  optimise,
  PASSES,
  type Pass,
  prefillingSplit,
  stageDecomposition,
  topologyBatching,
} from './passes.ts';
export type { PlanOptions } from './plan.ts';
export type { Results, RunOptions, Workflow } from './program.ts';
export {
  choice,
  gen,
  type Program,
  type ProgramBody,
  type ProgramOptions,
  type Session,
  type State,
} from './program.ts';
export type { EngineName, Sizes } from './sizes.ts';
export { validate } from './validate.ts';

/**
 * A workflow of components (see `Builder.component`). `build` makes the graph for an input and returns the results by name; no node runs
 * before the graph is complete.
 *
 * @example
 * const app = workflow('answer', (g, { question, passages }: Input) => {
 *   const scores = g.component('ranking', () => g.rerank(question, passages));
 *   const best = g.call('best', { scores, passages }, 'text', ({ scores, passages }) => passages[indexOfMax(scores)] ?? '');
 *   return { answer: g.component('answer', () => g.generate(prompt`${best}\nQuestion: ${question}\nAnswer:`, { maxTokens: 48 })) };
 * });
 * export const run = defineInferlet((input: Input) => app.run(input));
 */
export const workflow = <I>(
  name: string,
  build: (builder: Builder, input: I) => Readonly<Record<string, unknown>>,
  options?: PlanOptions<I>,
): Workflow<I> => registered(workflowOn(deviceEngine, name, build, options));

/**
 * A program over growing texts, in the manner of SGLang (Zheng et al., NeurIPS 2024, section 4). A run first traces `body`: it calls `body` with
 * opaque variables in place of arguments and generated values, which makes a graph for the passes. If `body` reads the value of a variable, the
 * run interprets the program instead: it calls `body` again and runs one operation after another. The log then names the place of the read.
 * Since `body` may run twice, side effects belong in `session.call`. With the option `plans`, the program is also traced while `pie build` or
 * `pie deploy` builds the function.
 *
 * @example
 * const app = program(
 *   'judge',
 *   (session) => {
 *     const text = session.state().add`Essay: ${session.argument('essay')}\n`;
 *     const [clear, exact, grade] = [gen({ stop: '\n' }), gen({ stop: '\n' }), choice([' A', ' B', ' C'])];
 *     text.fork().add`Is it clear?${clear}`;
 *     text.fork().add`Is it exact?${exact}`;
 *     text.add`Clear:${clear}\nExact:${exact}\nGrade:${grade}`;
 *     return { grade };
 *   },
 *   { plans: [{}] },
 * );
 */
export const program = <I>(name: string, body: ProgramBody<I>, options?: PlanOptions<I>): Program<I> =>
  registered(programOn(deviceEngine, log, name, body, options));

/** Registers a workflow or program in the list on the global object, which exists only while `runtime/build/graph` evaluates a function's source. */
function registered<W extends Workflow<never>>(made: W): W {
  const list = (globalThis as Readonly<Record<symbol, unknown>>)[Symbol.for('pie.workflows')];
  if (Array.isArray(list)) list.push(made);
  return made;
}
