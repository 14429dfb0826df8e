/** Workflows: programs as graphs of primitives that passes optimise. `@pie/inferlet/workflow`. */
import { log } from '../inferlet.ts';
import type { Builder } from './builder.ts';
import { deviceEngine } from './device.ts';
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
} from './passes.ts';
export {
  choice,
  gen,
  type Program,
  type ProgramBody,
  type ProgramOptions,
  type Session,
  type State,
} from './program.ts';
export { validate } from './validate.ts';
export { Untraceable, type Variable } from './variable.ts';
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
): Workflow<I> => workflowOn(deviceEngine, name, build);

/**
 * A program over growing texts, in the manner of SGLang (Zheng et al., NeurIPS 2024, section 4). It is traced first: run with opaque
 * variables in place of generated values, which makes a graph for the passes. A program that looks at a value is interpreted instead, one
 * operation after another, and the log says which place made it so. A program may therefore run twice, and its side effects belong in `call`.
 *
 * @example
 * const app = program('judge', (session, { essay }: Input) => {
 *   const text = session.state().add`Essay: ${essay}\n`;
 *   const [clear, exact, grade] = [gen({ stop: '\n' }), gen({ stop: '\n' }), choice([' A', ' B', ' C'])];
 *   text.fork().add`Is it clear?${clear}`;
 *   text.fork().add`Is it exact?${exact}`;
 *   text.add`Clear:${clear}\nExact:${exact}\nGrade:${grade}`;
 *   return { grade };
 * });
 */
export const program = <I>(name: string, body: ProgramBody<I>): Program<I> => programOn(deviceEngine, log, name, body);
