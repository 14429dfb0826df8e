/** Workflows: programs as graphs of primitives that passes optimise. `@pie/inferlet/workflow`. */
import { log } from '../inferlet.ts';
import type { Builder } from './builder.ts';
import { deviceEngine } from './device.ts';
import type { PlanOptions } from './plan.ts';
import { type Program, type ProgramBody, programOn } from './program.ts';
import { type Workflow, workflowOn } from './workflow.ts';

export {
  Builder,
  type CallOptions,
  type Given,
  type NodeOptions,
  Prompt,
  type PromptValue,
  prompt,
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
export { compared, tested, Untraceable, undecided, type Variable } from './variable.ts';
export type { Results, RunOptions, Workflow } from './workflow.ts';

/**
 * A workflow of components. `build` makes the graph for an input and returns the results by name; nothing runs before the graph is whole.
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
 * A program over growing texts, in the manner of SGLang (Zheng et al., NeurIPS 2024, section 4). It is traced first: run with opaque
 * variables in place of arguments and generated values, which makes a graph for the passes. A program that looks at a value is interpreted
 * instead, one operation after another, and the log names the place. A program may therefore run twice, and its side effects
 * belong in `call`. With `plans` it is traced when the component is built.
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

/** Tells the build about a workflow or program: while the build traces a source, the global object has a list for them. */
function registered<W extends Workflow<never>>(made: W): W {
  const list = (globalThis as Readonly<Record<symbol, unknown>>)[Symbol.for('pie.workflows')];
  if (Array.isArray(list)) list.push(made);
  return made;
}
