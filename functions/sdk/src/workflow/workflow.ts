import type { AbortSignalLike } from '../abort.ts';
import { Builder, inputOf } from './builder.ts';
import type { Engine, NodeValues } from './engine.ts';
import { type ExecuteOptions, execute } from './execute.ts';
import type { Graph, Input } from './graph.ts';
import { optimise, PASSES, type Pass } from './passes.ts';
import { givenBy, InputReads, type Made, type PlanOptions, Plans } from './plan.ts';
import { askedOnce, Sizes } from './sizes.ts';
import { validate } from './validate.ts';

/** Options of a run. */
export interface RunOptions extends Pick<ExecuteOptions, 'concurrency' | 'onNode'> {
  readonly signal?: AbortSignalLike | undefined;
  /** The passes to apply, in order: {@link PASSES} by default. Without passes, the components run in their order. */
  readonly passes?: readonly Pass[] | undefined;
}

/** The results of `build`, with values in place of refs; known values stay as they are. */
export type Results = NodeValues;

/** A workflow or a program: makes a graph from an input, and runs it. */
export interface Workflow<I> {
  readonly name: string;
  /** True for a program, which is traced. */
  readonly isProgram: boolean;
  /** Plans that are kept; undefined without the option `plans`. */
  readonly plans: Pick<Plans, 'count' | 'faults' | 'find'> | undefined;
  /** The graph for an input, checked, before the passes. */
  graph(input: I): Promise<Graph>;
  run(input: I, options?: RunOptions): Promise<Results>;
}

/** A workflow whose nodes run on an engine; see `workflow` of the index. */
export function workflowOn<I>(
  engine: Engine,
  name: string,
  build: (builder: Builder, input: I) => Readonly<Record<string, unknown>>,
  options: PlanOptions<I> = {},
): Workflow<I> {
  const plans = options.plans && new Plans();
  const make = (input: I): Made => {
    const reads = new InputReads();
    const builder = new Builder(name);
    const graph = builder.graph(inputsFor(build(builder, plans ? reads.watch(input) : input)));
    validate(graph);
    return { graph, reads: reads.end() };
  };
  plans?.build(options.plans ?? [], make);
  return {
    name,
    isProgram: false,
    plans,
    graph: async (input) => make(input).graph,
    async run(input, { passes = PASSES, ...rest } = {}) {
      const tokensOf = askedOnce((of) => engine.efficientTokens(of));
      const graph = plans?.find(input, passes, tokensOf) ?? planned(make(input), passes, new Sizes(tokensOf), plans);
      return execute(graph, { ...rest, engine, given: givenBy(input) });
    },
  };
}

/** Applies the passes to a graph, and keeps the result as a plan if `plans` is given. */
export const planned = (made: Made, passes: readonly Pass[], sizes: Sizes, plans: Plans | undefined): Graph =>
  plans ? plans.add(made, passes, sizes) : optimise(made.graph, passes, sizes);

function inputsFor(results: Readonly<Record<string, unknown>>): Record<string, Input> {
  return Object.fromEntries(Object.entries(results).map(([name, value]) => [name, inputOf(value)]));
}
