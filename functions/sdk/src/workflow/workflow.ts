import type { AbortSignalLike } from '../abort.ts';
import { Builder, inputOf } from './builder.ts';
import type { Engine, NodeValues } from './engine.ts';
import { type ExecuteOptions, execute } from './execute.ts';
import type { Graph, Input } from './graph.ts';
import { optimise, PASSES, type Pass } from './passes.ts';
import { validate } from './validate.ts';

/** Options of a run. */
export interface RunOptions extends Pick<ExecuteOptions, 'concurrency' | 'onNode'> {
  readonly signal?: AbortSignalLike | undefined;
  /** The passes to apply, in order: {@link PASSES} by default, none for the order of the components. */
  readonly passes?: readonly Pass[] | undefined;
}

/** The results that `build` returned refs for are values; known values stay as they are. */
export type Results = NodeValues;

/** A program as a graph that is made from an input. */
export interface Workflow<I> {
  readonly name: string;
  /** The graph for an input, checked, before the passes. */
  graph(input: I): Promise<Graph>;
  run(input: I, options?: RunOptions): Promise<Results>;
}

/** A workflow whose nodes run on an engine; see `workflow` of the index. */
export function workflowOn<I>(
  engine: Engine,
  name: string,
  build: (builder: Builder, input: I) => Readonly<Record<string, unknown>>,
): Workflow<I> {
  const graph = async (input: I): Promise<Graph> => {
    const builder = new Builder(name);
    const made = builder.graph(inputsFor(build(builder, input)));
    validate(made);
    return made;
  };
  return {
    name,
    graph,
    async run(input, options = {}) {
      return runGraph(engine, await graph(input), options);
    },
  };
}

/** Applies the passes to a graph and runs it. */
export function runGraph(
  engine: Engine,
  graph: Graph,
  options: RunOptions & { readonly given?: NodeValues } = {},
): Promise<Results> {
  const { passes = PASSES, ...rest } = options;
  return execute(optimise(graph, passes), { ...rest, engine });
}

function inputsFor(results: Readonly<Record<string, unknown>>): Record<string, Input> {
  return Object.fromEntries(Object.entries(results).map(([name, value]) => [name, inputOf(value)]));
}
